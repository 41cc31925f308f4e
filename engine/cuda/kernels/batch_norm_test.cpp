#include "engine/kernels/batch_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

struct NormExtents {
  std::int64_t n;
  std::int64_t c;
  std::int64_t s;
};
/// Rows, planes narrower and wider than 16 lanes, several blocks of 1024, packs that straddle
/// planes; fewer and more than 128 rows with s = 1; channels that a thread block just holds, and
/// that it just does not.
constexpr NormExtents kExtents[] = {
    {2, 1, 1},    {5, 3, 1},    {128, 64, 1}, {100, 33, 1}, {3, 2, 2},    {129, 5, 1},
    {5001, 3, 1}, {2, 3, 4},    {7, 5, 9},    {64, 3, 16},  {50, 8, 49},  {9, 4, 100},
    {3, 2, 2500}, {600, 2, 4},  {16, 70, 64}, {1, 3, 5000}, {4, 3, 1024}, {2, 3, 2049},
    {8, 2, 1024}, {8193, 2, 1}, {3, 2, 2731}};

/// Everything that training, evaluation and their backward leave behind.
template <typename T>
struct NormResults {
  std::vector<std::vector<T>> arrays;
  friend bool operator==(const NormResults&, const NormResults&) = default;
};

template <typename T>
NormResults<T> on_cpu(const NormExtents& e, bool train, bool parameters) {
  const std::int64_t n = e.n * e.c * e.s;
  const auto x = values<T>(n, 1);
  const auto gy = values<T>(n, 2);
  const auto w = values<T>(e.c, 3);
  const auto b = values<T>(e.c, 4);
  auto running_mean = values<T>(e.c, 5);
  std::vector<T> running_var(running_mean.size(), T(0.5));
  std::vector<T> y(x.size());
  std::vector<T> gx(x.size());
  std::vector<T> mean(w.size());
  std::vector<T> invstd(w.size());
  std::vector<T> gw(w.size());
  std::vector<T> gb(w.size());
  const T* wp = parameters ? w.data() : nullptr;
  const T* bp = parameters ? b.data() : nullptr;
  if (train) {
    cpu::batch_norm_train(e.n, e.c, e.s, x.data(), wp, bp, T(0.125), y.data(), mean.data(),
                          invstd.data(), running_mean.data(), running_var.data(), T(0.1));
  } else {
    cpu::batch_norm_eval(e.n, e.c, e.s, x.data(), wp, bp, running_mean.data(), running_var.data(),
                         T(0.125), y.data(), mean.data(), invstd.data());
  }
  cpu::batch_norm_backward(e.n, e.c, e.s, gy.data(), x.data(), mean.data(), invstd.data(), wp,
                           train, gx.data(), parameters ? gw.data() : nullptr,
                           parameters ? gb.data() : nullptr);
  return {{y, mean, invstd, running_mean, running_var, gx, gw, gb}};
}

template <typename T>
NormResults<T> on_device(const NormExtents& e, bool train, bool parameters, std::int64_t shift) {
  const std::int64_t n = e.n * e.c * e.s;
  const DeviceArray<T> x(values<T>(n, 1), shift);
  const DeviceArray<T> gy(values<T>(n, 2), shift);
  const DeviceArray<T> w(values<T>(e.c, 3), shift);
  const DeviceArray<T> b(values<T>(e.c, 4), shift);
  const DeviceArray<T> running_mean(values<T>(e.c, 5), shift);
  const std::vector<T> zeros(static_cast<std::size_t>(e.c));
  const DeviceArray<T> running_var(std::vector<T>(zeros.size(), T(0.5)), shift);
  const DeviceArray<T> y(n, shift);
  const DeviceArray<T> gx(n, shift);
  const DeviceArray<T> mean(zeros, shift);
  const DeviceArray<T> invstd(zeros, shift);
  const DeviceArray<T> gw(zeros, shift);
  const DeviceArray<T> gb(zeros, shift);
  const T* wp = parameters ? w.data() : nullptr;
  const T* bp = parameters ? b.data() : nullptr;
  if (train) {
    batch_norm_train(e.n, e.c, e.s, x.data(), wp, bp, T(0.125), y.data(), mean.data(),
                     invstd.data(), running_mean.data(), running_var.data(), T(0.1));
  } else {
    batch_norm_eval(e.n, e.c, e.s, x.data(), wp, bp, running_mean.data(), running_var.data(),
                    T(0.125), y.data(), mean.data(), invstd.data());
  }
  batch_norm_backward(e.n, e.c, e.s, gy.data(), x.data(), mean.data(), invstd.data(), wp, train,
                      gx.data(), parameters ? gw.data() : nullptr,
                      parameters ? gb.data() : nullptr);
  for (const DeviceArray<T>* array :
       {&x, &gy, &w, &b, &running_mean, &running_var, &y, &gx, &mean, &invstd, &gw, &gb}) {
    CHECK(array->guarded());
  }
  return {{y.host(), mean.host(), invstd.host(), running_mean.host(), running_var.host(), gx.host(),
           gw.host(), gb.host()}};
}

TEMPLATE_TEST_CASE("batch norm gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const NormExtents& e : kExtents) {
    for (const bool train : {true, false}) {
      for (const bool parameters : {true, false}) {
        for (const std::int64_t shift : {0, 1}) {
          CAPTURE(e.n, e.c, e.s, train, parameters, shift);
          const NormResults<T> want = on_cpu<T>(e, train, parameters);
          const NormResults<T> got = on_device<T>(e, train, parameters, shift);
          for (std::size_t i = 0; i < want.arrays.size(); ++i) {
            CAPTURE(i);
            CHECK(testing::same_bits(got.arrays[i], want.arrays[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("batch norm without running statistics and without gx leaves them alone", "[gpu][sums]") {
  need_device();
  const DeviceArray<float> x(values<float>(24, 1));
  const DeviceArray<float> y(24);
  const DeviceArray<float> mean(3);
  const DeviceArray<float> invstd(3);
  const DeviceArray<float> gb(3);
  batch_norm_train<float>(2, 3, 4, x.data(), nullptr, nullptr, 0.125F, y.data(), mean.data(),
                          invstd.data(), nullptr, nullptr, 0.1F);
  batch_norm_backward<float>(2, 3, 4, x.data(), x.data(), mean.data(), invstd.data(), nullptr, true,
                             nullptr, nullptr, gb.data());
  CHECK(y.guarded());
  CHECK(gb.guarded());
}

TEST_CASE("batch normalisation of channels that a thread block holds is one launch",
          "[gpu][sums]") {
  need_device();
  const auto launches = [](const NormExtents& e) {
    const std::int64_t n = e.n * e.c * e.s;
    const DeviceArray<float> x(values<float>(n, 1));
    const DeviceArray<float> y(n);
    const DeviceArray<float> mean(e.c);
    const DeviceArray<float> invstd(e.c);
    const std::int64_t before = backend_calls(Backend::kernels);
    batch_norm_train<float>(e.n, e.c, e.s, x.data(), nullptr, nullptr, 0.125F, y.data(),
                            mean.data(), invstd.data(), nullptr, nullptr, 0.1F);
    const std::int64_t forward = backend_calls(Backend::kernels) - before;
    batch_norm_backward<float>(e.n, e.c, e.s, x.data(), x.data(), mean.data(), invstd.data(),
                               nullptr, true, y.data(), nullptr, nullptr);
    return std::pair(forward, backend_calls(Backend::kernels) - before - forward);
  };
  CHECK(launches({16, 70, 64}) == std::pair<std::int64_t, std::int64_t>{1, 1});
  CHECK(launches({128, 70, 1}) == std::pair<std::int64_t, std::int64_t>{1, 1});
  CHECK(launches({8, 2, 1024}) == std::pair<std::int64_t, std::int64_t>{1, 3});
  CHECK(launches({129, 70, 1}) == std::pair<std::int64_t, std::int64_t>{5, 3});
}

}  // namespace
}  // namespace rematch::cuda
