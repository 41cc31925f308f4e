#include "engine/kernels/loss.h"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::for_each_layout;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("mse gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    if (n == 0) return;
    const auto x = values<T>(n, 1);
    const auto target = values<T>(n, 2);
    std::vector<T> gx(x.size());
    const T gradient(0.7);
    cpu::mse_backward(n, &gradient, x.data(), target.data(), gx.data());
    const DeviceArray<T> dx(x, shift);
    const DeviceArray<T> dtarget(target, shift);
    const DeviceArray<T> g(std::vector<T>{T(0.7)}, shift);
    const DeviceArray<T> loss(1, shift);
    const DeviceArray<T> dgx(n, shift);
    mse_forward(n, dx.data(), dtarget.data(), loss.data());
    mse_backward(n, g.data(), dx.data(), dtarget.data(), dgx.data());
    T want = 0;
    cpu::mse_forward(n, x.data(), target.data(), &want);
    CHECK(holds(loss, {want}));
    CHECK(holds(dgx, gx));
  });
}

TEMPLATE_TEST_CASE("cross entropy gives the CPU's bits on the device", "[gpu][sums]", float,
                   double) {
  using T = TestType;
  need_device();
  for (const auto [rows, cols] : testing::kTables) {
    if (rows == 0) continue;
    CAPTURE(rows, cols);
    const std::int64_t n = rows * cols;
    auto x = values<T>(n, 1);
    for (T& value : x) value *= T(8);
    std::vector<std::int32_t> target;
    for (std::int64_t r = 0; r < rows; ++r) {
      target.push_back(static_cast<std::int32_t>(r * 7919 % cols));
    }
    std::vector<T> log_probs(x.size());
    std::vector<T> gx(x.size());
    T want = 0;
    cpu::cross_entropy_forward(rows, cols, x.data(), target.data(), log_probs.data(), &want);
    const T gradient(0.7);
    cpu::cross_entropy_backward(rows, cols, &gradient, log_probs.data(), target.data(), gx.data());
    const DeviceArray<T> dx(x);
    const DeviceArray<std::int32_t> dtarget(target);
    const DeviceArray<T> g(std::vector<T>{T(0.7)});
    const DeviceArray<T> dlog_probs(n);
    const DeviceArray<T> loss(1);
    const DeviceArray<T> dgx(n);
    cross_entropy_forward(rows, cols, dx.data(), dtarget.data(), dlog_probs.data(), loss.data());
    cross_entropy_backward(rows, cols, g.data(), dlog_probs.data(), dtarget.data(), dgx.data());
    CHECK(holds(dlog_probs, log_probs));
    CHECK(holds(loss, {want}));
    CHECK(holds(dgx, gx));
  }
}

TEST_CASE("a class that does not exist makes the loss NaN on the device", "[gpu][sums]") {
  need_device();
  for (const std::int32_t wrong : {-1, 3}) {
    const DeviceArray<float> x(values<float>(6, 1));
    const DeviceArray<std::int32_t> target(std::vector<std::int32_t>{1, wrong});
    const DeviceArray<float> log_probs(6);
    const DeviceArray<float> loss(1);
    cross_entropy_forward(2, 3, x.data(), target.data(), log_probs.data(), loss.data());
    CHECK(std::isnan(loss.host()[0]));
    CHECK(log_probs.guarded());
  }
}

}  // namespace
}  // namespace rematch::cuda
