#include "scenarios/data/batches.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>

#include "engine/testing/ledger_scope.h"

namespace rematch::scenarios {
namespace {

Pictures grey(std::int64_t side, std::vector<std::uint8_t> values) {
  Pictures p{1, side, side, std::move(values), {}};
  p.labels.resize(p.values.size() / static_cast<std::size_t>(side * side));
  std::iota(p.labels.begin(), p.labels.end(), std::uint8_t{0});
  return p;
}

constexpr std::array<std::int64_t, 1> kFirst{0};

}  // namespace

TEST_CASE("a picture of 32 x 32 keeps its pixels, scaled to between -1 and 1") {
  const testing::LedgerScope scope;
  Pictures p{3, 32, 32, std::vector<std::uint8_t>(3 * 1024), {7}};
  for (std::size_t i = 0; i < p.values.size(); ++i) p.values[i] = static_cast<std::uint8_t>(i);
  const Batch batch = make_batch(p, kFirst);
  CHECK(batch.pictures.shape() == Shape{1, 3, 32, 32});
  CHECK(batch.labels.at(0) == 7);
  for (std::int64_t i = 0; i < 3 * 1024; ++i) {
    const double expected = static_cast<float>(static_cast<double>(i % 256) / 127.5 - 1.0);
    REQUIRE(batch.pictures.at(i) == expected);
  }
}

TEST_CASE("a smaller grey picture is enlarged by interpolation and stands in all three channels") {
  const testing::LedgerScope scope;
  // Two columns, 0 and 255: the centres lie at 8 and 24 of 32.
  const Batch batch = make_batch(grey(2, {0, 255, 0, 255}), kFirst);
  for (std::int64_t x = 0; x < 32; ++x) {
    const double share = std::clamp((static_cast<double>(x) + 0.5 - 8) / 16, 0.0, 1.0);
    for (const std::int64_t place : {x, 31 * 32 + x, 2 * 1024 + 17 * 32 + x}) {
      REQUIRE(batch.pictures.at(place) == static_cast<float>(2 * share - 1));
    }
  }
}

TEST_CASE("interpolation keeps a picture of one value as it is, for every side and value") {
  const testing::LedgerScope scope;
  for (const std::int64_t side : {1, 3, 28, 31, 32}) {
    for (const int value : {0, 1, 127, 254, 255}) {
      std::vector<std::uint8_t> values(static_cast<std::size_t>(side * side),
                                       static_cast<std::uint8_t>(value));
      const Batch batch = make_batch(grey(side, std::move(values)), kFirst);
      const double expected = static_cast<float>(value / 127.5 - 1.0);
      const std::vector<double> got = batch.pictures.to_vector();
      REQUIRE(std::all_of(got.begin(), got.end(), [&](double v) { return v == expected; }));
    }
  }
}

TEST_CASE("a batch holds the pictures that were asked for, in that order") {
  const testing::LedgerScope scope;
  const Pictures p = grey(1, {10, 20, 30});
  const std::array<std::int64_t, 3> order{2, 0, 2};
  const Batch batch = make_batch(p, order);
  CHECK(batch.labels.to_vector() == std::vector<double>{2, 0, 2});
  CHECK(batch.pictures.at(0) == batch.pictures.at(2 * 3072));
  CHECK(batch.pictures.at(0) > batch.pictures.at(3072));
  const std::array<std::int64_t, 1> beyond{3};
  CHECK_THROWS_AS(make_batch(p, beyond), std::invalid_argument);
}

TEST_CASE("pictures that do not fit the network are refused") {
  const testing::LedgerScope scope;
  for (const Pictures& p : {Pictures{1, 33, 33, std::vector<std::uint8_t>(33 * 33), {0}},
                            Pictures{1, 2, 3, std::vector<std::uint8_t>(6), {0}},
                            Pictures{2, 4, 4, std::vector<std::uint8_t>(32), {0}}}) {
    CHECK_THROWS_AS(make_batch(p, kFirst), std::invalid_argument);
  }
}

TEST_CASE("a shuffle is a permutation, the same for the same state, and uses its words once") {
  Generator a{7, 0, 0};
  Generator b = a;
  const std::vector<std::int64_t> first = shuffled(1000, a);
  CHECK(first == shuffled(1000, b));
  CHECK(a.offset == 1000);
  const std::vector<std::int64_t> second = shuffled(1000, a);
  CHECK(first != second);
  for (std::vector<std::int64_t> order : {first, second}) {
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> all(1000);
    std::iota(all.begin(), all.end(), std::int64_t{0});
    CHECK(order == all);
  }
  CHECK(shuffled(0, a).empty());
}

TEST_CASE("a shuffle of three makes each of its six orders about as often") {
  std::array<int, 27> seen{};
  Generator g{11, 0, 0};
  constexpr int kTimes = 6000;
  for (int i = 0; i < kTimes; ++i) {
    const std::vector<std::int64_t> o = shuffled(3, g);
    ++seen[static_cast<std::size_t>(o[0] * 9 + o[1] * 3 + o[2])];
  }
  CHECK(std::count_if(seen.begin(), seen.end(), [](int n) { return n > 0; }) == 6);
  // Five standard deviations of a count with mean 1000 and variance 833.
  for (const int n : seen) CHECK((n == 0 || std::abs(n - kTimes / 6) < 145));
}

}  // namespace rematch::scenarios
