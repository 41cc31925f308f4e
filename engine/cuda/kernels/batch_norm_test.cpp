#include "engine/kernels/batch_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

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

TYPED_DEVICE_TEST_CASE("batch norm gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const auto& [n, c, s] : kExtents) {
    for (const bool train : {true, false}) {
      for (const bool parameters : {true, false}) {
        for (const std::int64_t shift : {0, 1}) {
          CAPTURE(n, c, s, train, parameters, shift);
          const std::int64_t size = n * c * s;
          const auto eps = T(0.125);
          const Twin<T> x(values<T>(size, 1), shift);
          const Twin<T> gy(values<T>(size, 2), shift);
          const Twin<T> w(values<T>(c, 3), shift);
          const Twin<T> b(values<T>(c, 4), shift);
          const Twin<T> running_mean(values<T>(c, 5), shift);
          const Twin<T> running_var(std::vector<T>(static_cast<std::size_t>(c), T(0.5)), shift);
          const Twin<T> y(size, shift);
          const Twin<T> mean(std::vector<T>(static_cast<std::size_t>(c)), shift);
          const Twin<T> invstd(mean.host(), shift);
          const Twin<T> gx(size, shift);
          const Twin<T> gw(mean.host(), shift);
          const Twin<T> gb(mean.host(), shift);
          const auto wp = null_unless(parameters, w);
          const auto bp = null_unless(parameters, b);
          if (train) {
            REMATCH_CALL_BOTH(batch_norm_train<T>, n, c, s, x, wp, bp, eps, y, mean, invstd,
                              running_mean, running_var, T(0.1));
          } else {
            REMATCH_CALL_BOTH(batch_norm_eval<T>, n, c, s, x, wp, bp, running_mean, running_var,
                              eps, y, mean, invstd);
          }
          REMATCH_CALL_BOTH(batch_norm_backward<T>, n, c, s, gy, x, mean, invstd, wp, train, gx,
                            null_unless(parameters, gw), null_unless(parameters, gb));
          check_alike(x, gy, w, b, y, mean, invstd, running_mean, running_var, gx, gw, gb);
        }
      }
    }
  }
}

DEVICE_TEST_CASE("batch norm without running statistics and without gx leaves them alone",
                 "[sums]") {
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

DEVICE_TEST_CASE("batch normalisation of channels that a thread block holds is one launch",
                 "[sums]") {
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
