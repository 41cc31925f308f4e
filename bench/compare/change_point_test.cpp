#include "bench/compare/change_point.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>

#include "bench/compare/testing/synthetic.h"

namespace rematch::compare {
namespace {

using Shape = LevelChange::Shape;

/// 1 % over the tests of 30 benchmarks.
constexpr double kThreshold = 0.01 / (30 * kTestsPerSeries);
const double kSmall = std::log(1.02);

/// What a nightly measurement scatters by: 0.7 %, with a bad night now and then.
std::vector<double> scatter(NoisyMachine& machine, std::size_t n) {
  std::vector<double> v;
  for (std::size_t i = 0; i < n; ++i) {
    v.push_back(0.007 * machine.normal() + (machine.uniform() < 0.03 ? 0.15 : 0));
  }
  return v;
}

}  // namespace

TEST_CASE("the p-value of Mann and Kendall counts permutations") {
  std::vector<double> order{0, 1, 2, 3, 4, 5, 6};
  const auto statistic = [](const std::vector<double>& v) {
    int s = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      for (std::size_t j = i + 1; j < v.size(); ++j) s += v[j] > v[i] ? 1 : -1;
    }
    return std::abs(s);
  };
  std::vector<int> counts(22);
  int total = 0;
  do {
    ++counts[static_cast<std::size_t>(statistic(order))];
    ++total;
  } while (std::next_permutation(order.begin(), order.end()));
  for (const std::vector<double>& v :
       {std::vector<double>{0, 1, 2, 3, 4, 5, 6}, std::vector<double>{6, 5, 4, 3, 1, 2, 0},
        std::vector<double>{0, 2, 1, 3, 6, 5, 4}}) {
    int as_monotone = 0;
    for (std::size_t s = static_cast<std::size_t>(statistic(v)); s < counts.size(); ++s) {
      as_monotone += counts[s];
    }
    CHECK(std::fabs(mann_kendall(v) - static_cast<double>(as_monotone) / total) < 1e-12);
  }
  CHECK(mann_kendall(std::vector<double>(9, 1.0)) == 1);
}

TEST_CASE("the p-value of the test for a level is that of all orders") {
  const std::vector<double> values{2, 3, 1, 5, 7, 4, 6};
  const auto extent = [](const std::vector<double>& v, PartialSums statistic) {
    double sum = 0;
    double low = 0;
    double high = 0;
    for (const double x : v) {
      sum += x - 4;
      low = std::min(low, sum);
      high = std::max(high, sum);
    }
    return statistic == PartialSums::range ? high - low : std::max(high, -low);
  };
  for (const PartialSums statistic : {PartialSums::largest, PartialSums::range}) {
    std::vector<double> order{1, 2, 3, 4, 5, 6, 7};
    int as_far = 0;
    int total = 0;
    do {
      as_far += extent(order, statistic) >= extent(values, statistic) ? 1 : 0;
      ++total;
    } while (std::next_permutation(order.begin(), order.end()));
    // 20 exceedances leave a relative error of about 22 %.
    const double exact = static_cast<double>(as_far) / total;
    CHECK(std::fabs(level_test(values, statistic, 1e-4) / exact - 1) < 0.7);
    CHECK(level_test(std::vector<double>(12, 1.0), statistic, 1e-4) == 1);
  }
}

TEST_CASE("the range of the partial sums sees a rise that is undone") {
  std::vector<double> v;
  for (int i = 0; i < 30; ++i) v.push_back(i % 3 + (i >= 10 && i < 20 ? 10 : 0));
  CHECK(level_test(v, PartialSums::range, 1e-3) < 1e-3);
  CHECK(level_test(v, PartialSums::largest, 1e-3) > 1e-3);
}

TEST_CASE("a step is found where it is") {
  NoisyMachine machine({}, 1);
  int found = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<double> v = scatter(machine, 40);
    for (std::size_t k = 25; k < v.size(); ++k) v[k] += std::log(1.04);
    const std::vector<LevelChange> changes = level_changes(v, kThreshold, kSmall);
    if (changes.size() != 1) continue;
    const LevelChange& c = changes[0];
    found += c.shape == Shape::step && c.first >= 24 && c.first <= 26 &&
                     std::fabs(c.after - c.before - std::log(1.04)) < 0.01
                 ? 1
                 : 0;
  }
  CHECK(found >= 45);
}

TEST_CASE("a drift that no pair of neighbours shows is found, with its size") {
  NoisyMachine machine({}, 2);
  int found = 0;
  int drifts = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<double> v = scatter(machine, 36);
    for (std::size_t k = 20; k < v.size(); ++k) v[k] += 0.004 * static_cast<double>(k - 19);
    const std::vector<LevelChange> changes = level_changes(v, kThreshold, kSmall);
    if (changes.empty()) continue;
    const double rise = changes.back().after - changes.front().before;
    found += rise > 0.04 && rise < 0.09 ? 1 : 0;
    drifts += changes[0].shape == Shape::drift ? 1 : 0;
  }
  CHECK(found >= 40);
  CHECK(drifts >= 40);
}

TEST_CASE("a rise that is undone is two changes") {
  NoisyMachine machine({}, 3);
  std::vector<double> v = scatter(machine, 60);
  for (std::size_t k = 20; k < 40; ++k) v[k] += std::log(1.06);
  const std::vector<LevelChange> changes = level_changes(v, kThreshold, kSmall);
  REQUIRE(changes.size() == 2);
  CHECK(changes[0].after > changes[0].before);
  CHECK(changes[1].after < changes[1].before);
  CHECK(std::fabs(changes[1].after - changes[0].before) < 0.01);
}

TEST_CASE("small steps of one direction are one drift") {
  std::vector<double> v;
  for (int i = 0; i < 100; ++i) {
    v.push_back((i < 40 ? 0 : i < 55 ? 0.0195 : 0.0365) + 0.0005 * ((i * 7) % 5));
  }
  const std::vector<LevelChange> changes = level_changes(v, kThreshold, kSmall);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].shape == Shape::drift);
  CHECK(changes[0].first == 40);
  CHECK(changes[0].last == 55);
  CHECK(std::fabs(changes[0].after - changes[0].before - 0.0365) < 0.001);
}

TEST_CASE("a step is not blurred by a tiny change before it") {
  std::vector<double> v;
  for (int i = 0; i < 30; ++i) v.push_back(1e-4 * i + (i < 15 ? 0 : 0.1));
  const std::vector<LevelChange> changes = level_changes(v, kThreshold, kSmall);
  const auto large = std::find_if(changes.begin(), changes.end(),
                                  [](const LevelChange& c) { return c.after - c.before > kSmall; });
  REQUIRE(large != changes.end());
  CHECK(large->shape == Shape::step);
  CHECK(large->first == 15);
}

TEST_CASE("a staircase that goes on is a drift from its beginning to its end") {
  std::vector<double> v;
  for (int i = 0; i < 60; ++i) v.push_back(0.015 * (i / 20) + 0.0005 * ((i * 7) % 5));
  const std::vector<LevelChange> changes = level_changes(v, kThreshold, kSmall);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].shape == Shape::drift);
  CHECK(std::fabs(changes[0].after - changes[0].before - 0.03) < 0.01);
}

TEST_CASE("a history without a change has one in at most 1 of 100 whole histories") {
  NoisyMachine machine({}, 4);
  int alarms = 0;
  for (int history = 0; history < 60; ++history) {
    bool alarm = false;
    for (int benchmark = 0; benchmark < 30; ++benchmark) {
      alarm = alarm || !level_changes(scatter(machine, 30), kThreshold, kSmall).empty();
    }
    alarms += alarm ? 1 : 0;
  }
  CHECK(alarms <= 2);
}

TEST_CASE("what is too short or does not vary has no change") {
  CHECK(level_changes(std::vector<double>(50, 3.0), kThreshold, kSmall).empty());
  CHECK(level_changes(std::vector<double>{0, 0, 0, 0, 1, 1, 1}, 0.5, kSmall).empty());
  CHECK(level_changes({}, kThreshold, kSmall).empty());
}

}  // namespace rematch::compare
