#include "engine/math/lane_order.h"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include "engine/cpu/reduce.h"
#include "engine/cpu/testing/values.h"

namespace rematch::math {
namespace {

using cpu::testing::same_bits;
using cpu::testing::values;

/// LaneSum as a backend computes it: a thread a lane, then the tree, then the blocks.
template <typename T>
double by_lanes(const std::vector<T>& x, std::int64_t run) {
  const auto total = static_cast<std::int64_t>(x.size());
  GroupedSum<double> sum;
  for (std::int64_t b = 0; b < ceil_div(total, kSumBlock); ++b) {
    T lanes[kSumLanes];
    for (std::int64_t l = 0; l < kSumLanes; ++l) {
      lanes[l] = lane_of_block<T>(total, run, b, l, [&](std::int64_t r, std::int64_t i) {
        return x[static_cast<std::size_t>(r * run + i)];
      });
    }
    for (std::int64_t half = kSumLanes / 2; half > 0; half /= 2) {
      for (std::int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    sum.add(static_cast<double>(lanes[0]));
  }
  return sum.total();
}

TEMPLATE_TEST_CASE("lane_of_block gives every lane what LaneSum gives it", "", float, double) {
  for (const std::int64_t run : {1, 2, 4, 9, 15, 16, 17, 49, 100, 1000, 1024, 1025, 5000}) {
    for (const std::int64_t runs : {1, 2, 3, 64, 300}) {
      if (run * runs > 100000) continue;
      CAPTURE(run, runs);
      const auto x = values<TestType>(run * runs, 5);
      cpu::LaneSum<TestType> sum;
      for (std::int64_t r = 0; r < runs; ++r) {
        sum.add(run, [&](std::int64_t i) { return x[static_cast<std::size_t>(r * run + i)]; });
      }
      CHECK(same_bits(std::vector<double>{by_lanes(x, run)}, std::vector<double>{sum.total()}));
    }
  }
}

TEST_CASE("a grouped sum is the plain one up to 256 terms, and one of groups beyond") {
  auto x = values<double>(256 * 256 + 300, 8);
  // Every sum of these rounds.
  for (double& each : x) each /= 3;
  for (const std::size_t n : {0, 1, 255, 256, 257, 511, 512, 513, 65536, 65537, 65836}) {
    CAPTURE(n);
    GroupedSum<double> sum;
    double plain = 0;
    double groups = 0;
    for (std::size_t first = 0; first < n; first += 256) {
      double group = 0;
      for (std::size_t i = first; i < std::min(n, first + 256); ++i) {
        sum.add(x[i]);
        plain += x[i];
        group += x[i];
      }
      groups += group;
    }
    CHECK(same_bits(std::vector<double>{sum.total()}, std::vector<double>{groups}));
    if (n <= 256) CHECK(same_bits(std::vector<double>{groups}, std::vector<double>{plain}));
    // Else the order would not show.
    if (n > 60000) CHECK(plain != groups);
  }
}

/// A number that counts the additions on the way to it that had to wait for each other.
struct Depth {
  int steps = 0;
  Depth& operator+=(const Depth& other) {
    steps = std::max(steps, other.steps) + 1;
    return *this;
  }
};

TEST_CASE("the longest chain of additions of a sum does not grow with all of its elements") {
  const auto chain = [](std::int64_t n) {
    GroupedSum<Depth> sum;
    for (std::int64_t b = 0; b < ceil_div(n, kSumBlock); ++b) {
      Depth lane = lane_chain(Depth{}, b * kSumBlock, std::min(n, (b + 1) * kSumBlock), 0,
                              [](auto) { return Depth{}; });
      for (std::int64_t half = kSumLanes / 2; half > 0; half /= 2) lane += lane;
      sum.add(lane);
    }
    return sum.total().steps;
  };
  CHECK(chain(4096) == 64 + 4 + 4 + 1);
  CHECK(chain(262144) == 64 + 4 + 256 + 2);
  CHECK(chain(std::int64_t{1} << 26) == 64 + 4 + 256 + 256 + 1);
  // As many terms as rows, as the loss of that many rows has.
  GroupedSum<Depth> rows;
  for (int r = 0; r < 65536; ++r) rows.add({});
  CHECK(rows.total().steps == 256 + 256 + 1);
}

TEST_CASE("no lane is longer than the error bound counts on") {
  for (std::int64_t run = 2; run <= 1100; ++run) {
    const std::int64_t total = std::max<std::int64_t>(run * 3, 5000);
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < total / kSumBlock; ++b) {
      longest = std::max(
          longest, lane_of_block<std::int64_t>(total, run, b, 0, [](auto, auto) { return 1; }));
    }
    CAPTURE(run);
    CHECK(longest <= 1024 / run + 66);
  }
  CHECK(lane_of_block<std::int64_t>(9999, 9999, 3, 0, [](auto, auto) { return 1; }) == 64);
}

}  // namespace
}  // namespace rematch::math
