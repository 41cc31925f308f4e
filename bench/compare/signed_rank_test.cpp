#include "bench/compare/signed_rank.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

namespace rematch::compare {
namespace {

/// Calls `visit` with every assignment of signs to `sizes`.
template <class Visit>
void with_all_signs(const std::vector<double>& sizes, const Visit& visit) {
  std::vector<double> signed_sizes(sizes.size());
  for (std::uint32_t bits = 0; bits < (1U << sizes.size()); ++bits) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      signed_sizes[i] = (bits >> i & 1U) != 0 ? sizes[i] : -sizes[i];
    }
    visit(signed_sizes);
  }
}

std::vector<double> ranks(int n) {
  std::vector<double> list;
  for (int i = 1; i <= n; ++i) list.push_back(i);
  return list;
}

}  // namespace

TEST_CASE("the signed-rank distribution counts all assignments of signs") {
  for (int n = 1; n <= 12; ++n) {
    const int most = n * (n + 1) / 2;
    std::vector<int> at_least(static_cast<std::size_t>(most) + 1);
    with_all_signs(ranks(n), [&](const std::vector<double>& signed_ranks) {
      double sum = 0;
      for (const double r : signed_ranks) sum += std::max(0.0, r);
      for (int w = 0; w <= static_cast<int>(sum); ++w) ++at_least[static_cast<std::size_t>(w)];
    });
    for (int w = 0; w <= most; ++w) {
      CHECK(signed_rank_tail(n, w) == std::ldexp(at_least[static_cast<std::size_t>(w)], -n));
    }
    CHECK(signed_rank_tail(n, most + 1) == 0);
  }
}

TEST_CASE("beyond the exact tails the approximation is the more careful one") {
  const int n = kExactRanks + 1;
  std::vector<double> p{1.0};
  for (int rank = 1; rank <= n; ++rank) {
    std::vector<double> next(p.size() + static_cast<std::size_t>(rank), 0.0);
    for (std::size_t w = 0; w < p.size(); ++w) {
      next[w] += p[w] / 2;
      next[w + static_cast<std::size_t>(rank)] += p[w] / 2;
    }
    p = next;
  }
  double tail = 0;
  for (std::size_t w = p.size(); w-- > p.size() / 2;) {
    tail += p[w];
    if (tail > 1e-12 && tail < 0.005) {
      CHECK(signed_rank_tail(n, static_cast<std::int64_t>(w)) >= tail);
    }
  }
}

TEST_CASE("an interval leaves out exactly what the tests of its tails reject") {
  std::mt19937_64 bits(7);
  for (const int n : {5, 6, 9, 20, 33}) {
    std::vector<double> d;
    for (int i = 0; i < n; ++i) d.push_back(static_cast<double>(bits() % 1000) / 100);
    const CentreOfDifferences centre(d);
    for (const double level : {0.9, 0.95, 0.99}) {
      const auto interval = centre.interval(level);
      for (double c = -1; c < 11; c += 0.0173) {
        const double tail = (1 - level) / 2;
        CHECK((c < interval.low) == (centre.p_above(c) <= tail));
        CHECK((c > interval.high) == (centre.p_below(c) <= tail));
      }
    }
  }
}

TEST_CASE("an interval misses the centre no more often than its level allows") {
  const std::vector<double> sizes{0.3, 1, 2.5, 2.6, 4, 5.5, 7, 9, 11, 40};
  for (const double level : {0.8, 0.9, 0.95, 0.99}) {
    int missed = 0;
    with_all_signs(sizes, [&](const std::vector<double>& d) {
      const auto interval = CentreOfDifferences(d).interval(level);
      missed += interval.low > 0 || interval.high < 0 ? 1 : 0;
    });
    CHECK(missed <= (1 - level) * 1024);
    // Exact up to the grain of the distribution.
    CHECK(missed >= (1 - level) * 1024 / 2);
  }
}

TEST_CASE("ties and zeros never make a rejection more likely") {
  for (const std::vector<double>& sizes : {std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                           std::vector<double>{0, 0, 0, 1, 2, 2, 3, 3, 3, 4},
                                           std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}) {
    for (const double alpha : {0.001, 0.01, 0.05, 0.2}) {
      int rejected = 0;
      with_all_signs(sizes, [&](const std::vector<double>& d) {
        rejected += CentreOfDifferences(d).p_above(0) <= alpha ? 1 : 0;
      });
      CHECK(rejected <= alpha * 1024);
    }
  }
}

TEST_CASE("too few differences have no interval and cannot reject") {
  const std::vector<double> d{5, 5.5, 6, 6.5, 7};
  const CentreOfDifferences centre(d);
  CHECK(std::isinf(centre.interval(0.95).high));
  CHECK(std::isfinite(centre.interval(0.9).high));
  CHECK(centre.p_above(0) == 1.0 / 32);
  CHECK(fewest_differences(1.0 / 32) == 5);
  CHECK(fewest_differences(0.01 / 60) == 13);
  CHECK(CentreOfDifferences({}).p_above(0) == 1);
}

TEST_CASE("the estimate is the median of the averages of all pairs") {
  CHECK(CentreOfDifferences(std::vector<double>{3}).estimate() == 3);
  CHECK(CentreOfDifferences(std::vector<double>{1, 2, 9}).estimate() == 3.5);
  CHECK(CentreOfDifferences(std::vector<double>{1, 2, 3, 1000}).estimate() == 2.75);
}

TEST_CASE(
    "Holm's correction multiplies the smallest by the size of the family, the next by one less") {
  const std::vector<double> p{0.01, 0.04, 0.03, 0.005};
  const std::vector<double> adjusted = holm(p);
  CHECK(std::fabs(adjusted[3] - 0.02) < 1e-12);
  CHECK(std::fabs(adjusted[0] - 0.03) < 1e-12);
  CHECK(std::fabs(adjusted[2] - 0.06) < 1e-12);
  // Never below a smaller one.
  CHECK(adjusted[1] == adjusted[2]);
  CHECK(holm(std::vector<double>{0.7, 0.9})[0] == 1);
  CHECK(holm({}).empty());
}

}  // namespace rematch::compare
