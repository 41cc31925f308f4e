#include "engine/kernels/group_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

struct Sets {
  std::int64_t n;
  std::int64_t c;
  std::int64_t s;
  std::int64_t groups;
};
/// Rank 2 and 4; one group, as many as channels, and between; sets of a half-warp and of a block of
/// threads; channels that end within a block of 1024; fewer and more than 128 samples.
constexpr Sets kSets[] = {{1, 1, 1, 1},    {5, 6, 1, 3},    {128, 64, 1, 8}, {129, 33, 1, 11},
                          {2, 3000, 1, 2}, {3, 2, 2, 1},    {2, 3, 4, 3},    {7, 6, 9, 2},
                          {64, 4, 16, 2},  {50, 8, 49, 4},  {9, 4, 100, 4},  {3, 2, 2500, 1},
                          {600, 2, 4, 2},  {16, 72, 7, 24}, {1, 3, 5000, 3}, {2, 6, 700, 2}};

TYPED_DEVICE_TEST_CASE("group norm gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (const auto& [n, c, s, groups] : kSets) {
    for (const bool parameters : {true, false}) {
      CAPTURE(n, c, s, groups, parameters);
      const std::int64_t size = n * c * s;
      const std::int64_t sets = n * groups;
      const Twin<T> x(values<T>(size, 1));
      const Twin<T> gy(values<T>(size, 2));
      const Twin<T> w(values<T>(c, 3));
      const Twin<T> b(values<T>(c, 4));
      const auto eps = T(0.125);
      const Twin<T> y(size);
      const Twin<T> mean(sets);
      const Twin<T> rstd(sets);
      const Twin<T> gx(size);
      const Twin<T> gw(c);
      const Twin<T> gb(c);
      const auto wp = null_unless(parameters, w);
      REMATCH_CALL_BOTH(group_norm_forward<T>, n, c, s, groups, x, wp, null_unless(parameters, b),
                        eps, y, mean, rstd);
      REMATCH_CALL_BOTH(group_norm_backward<T>, n, c, s, groups, gy, x, mean, rstd, wp, gx, gw, gb);
      const Twin<T> alone(c);
      REMATCH_CALL_BOTH(group_norm_backward<T>, n, c, s, groups, gy, x, mean, rstd, wp, nullptr,
                        alone, nullptr);
      CHECK(testing::same_bits(alone.host(), gw.host()));
      check_alike(y, mean, rstd, gx, gw, gb, alone);
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
