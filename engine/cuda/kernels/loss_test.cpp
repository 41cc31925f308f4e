#include "engine/kernels/loss.h"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("mse gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    if (n == 0) return;
    const Twin<T> x(values<T>(n, 1), shift);
    const Twin<T> target(values<T>(n, 2), shift);
    const Twin<T> gradient(std::vector<T>{T(0.7)}, shift);
    const Twin<T> loss(1, shift);
    const Twin<T> gx(n, shift);
    REMATCH_CALL_BOTH(mse_forward<T>, n, x, target, loss);
    REMATCH_CALL_BOTH(mse_backward<T>, n, gradient, x, target, gx);
    check_alike(loss, gx);
  });
}

TYPED_DEVICE_TEST_CASE("cross entropy gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const auto [rows, cols] : testing::kTables) {
    if (rows == 0) continue;
    CAPTURE(rows, cols);
    const std::int64_t n = rows * cols;
    auto logits = values<T>(n, 1);
    for (T& value : logits) value *= T(8);
    std::vector<std::int32_t> classes;
    for (std::int64_t r = 0; r < rows; ++r) {
      classes.push_back(static_cast<std::int32_t>(r * 7919 % cols));
    }
    const Twin<T> x(logits);
    const Twin<std::int32_t> target(classes);
    const Twin<T> gradient(std::vector<T>{T(0.7)});
    const Twin<T> log_probs(n);
    const Twin<T> loss(1);
    const Twin<T> gx(n);
    REMATCH_CALL_BOTH(cross_entropy_forward<T>, rows, cols, x, target, log_probs, loss);
    REMATCH_CALL_BOTH(cross_entropy_backward<T>, rows, cols, gradient, log_probs, target, gx);
    check_alike(log_probs, loss, gx);
  }
}

DEVICE_TEST_CASE("a class that does not exist makes the loss NaN on the device", "[sums]") {
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
