#include "bench/compare/signed_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

namespace rematch::compare {
namespace {

std::int64_t rank_sum(int n) { return static_cast<std::int64_t>(n) * (n + 1) / 2; }

/// tails[w] = P(W+ >= w) for w in 0..rank_sum(n).
std::vector<double> exact_tails(int n) {
  std::vector<double> p(static_cast<std::size_t>(rank_sum(n)) + 1, 0.0);
  p[0] = 1;
  for (std::int64_t rank = 1; rank <= n; ++rank) {
    for (std::int64_t w = rank_sum(static_cast<int>(rank)); w >= 0; --w) {
      const auto at = static_cast<std::size_t>(w);
      const double without = p[at];
      const double with = w >= rank ? p[static_cast<std::size_t>(w - rank)] : 0;
      p[at] = (without + with) / 2;
    }
  }
  // From the end, so that small tails are sums of small numbers.
  for (std::size_t w = p.size() - 1; w > 0; --w) p[w - 1] += p[w];
  return p;
}

const std::vector<double>& cached_tails(int n) {
  static std::mutex mutex;
  static std::array<std::vector<double>, kExactRanks + 1> cache;
  const std::lock_guard lock(mutex);
  std::vector<double>& tails = cache[static_cast<std::size_t>(n)];
  if (tails.empty()) tails = exact_tails(n);
  return tails;
}

/// The largest k with P(W+ <= k - 1) <= tail; 0 when there is none.
std::int64_t lower_quantile(int n, double tail) {
  std::int64_t low = 0;
  std::int64_t high = rank_sum(n) / 2 + 1;
  while (low + 1 < high) {
    const std::int64_t middle = (low + high) / 2;
    // W+ and rank_sum(n) - W+ have the same distribution.
    (signed_rank_tail(n, rank_sum(n) - middle + 1) <= tail ? low : high) = middle;
  }
  return low;
}

}  // namespace

double signed_rank_tail(int n, std::int64_t w) {
  if (w <= 0) return 1;
  if (w > rank_sum(n)) return 0;
  if (n <= kExactRanks) return cached_tails(n)[static_cast<std::size_t>(w)];
  const double count = n;
  const double mean = count * (count + 1) / 4;
  const double deviation = std::sqrt(count * (count + 1) * (2 * count + 1) / 24);
  return std::erfc((static_cast<double>(w) - 0.5 - mean) / deviation / std::sqrt(2.0)) / 2;
}

int fewest_differences(double p) {
  int n = 1;
  while (n < 1000 && std::ldexp(1.0, -n) > p) ++n;
  return n;
}

CentreOfDifferences::CentreOfDifferences(std::span<const double> differences)
    : n_(static_cast<int>(differences.size())) {
  walsh_.reserve(static_cast<std::size_t>(rank_sum(n_)));
  for (std::size_t i = 0; i < differences.size(); ++i) {
    for (std::size_t j = i; j < differences.size(); ++j) {
      walsh_.push_back((differences[i] + differences[j]) / 2);
    }
  }
  std::sort(walsh_.begin(), walsh_.end());
}

double CentreOfDifferences::estimate() const {
  const std::size_t half = walsh_.size() / 2;
  return walsh_.size() % 2 == 1 ? walsh_[half] : (walsh_[half - 1] + walsh_[half]) / 2;
}

CentreOfDifferences::Interval CentreOfDifferences::interval(double level) const {
  const std::int64_t k = lower_quantile(n_, (1 - level) / 2);
  if (k == 0) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {-kInfinity, kInfinity};
  }
  return {walsh_[static_cast<std::size_t>(k) - 1],
          walsh_[walsh_.size() - static_cast<std::size_t>(k)]};
}

double CentreOfDifferences::p_above(double c) const {
  const auto above = walsh_.end() - std::upper_bound(walsh_.begin(), walsh_.end(), c);
  return signed_rank_tail(n_, above);
}

double CentreOfDifferences::p_below(double c) const {
  const auto below = std::lower_bound(walsh_.begin(), walsh_.end(), c) - walsh_.begin();
  return signed_rank_tail(n_, below);
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double highest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    highest = std::max(highest, std::min(1.0, p[order[i]] * static_cast<double>(p.size() - i)));
    adjusted[order[i]] = highest;
  }
  return adjusted;
}

}  // namespace rematch::compare
