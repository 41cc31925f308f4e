#include "bench/compare/change_point.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "bench/compare/sides.h"

namespace rematch::compare {
namespace {

using Values = std::span<const double>;
using Shape = LevelChange::Shape;

constexpr std::size_t kExactPoints = 100;
/// A drift shorter than this is a step.
constexpr std::size_t kShortestDrift = 5;
constexpr std::size_t kShortestLevel = 3;

double middle(Values v) { return median({v.begin(), v.end()}); }

double deviation(Values v, double level) {
  double sum = 0;
  for (const double x : v) sum += std::fabs(x - level);
  return sum;
}

/// P(inversions <= most) of a random permutation of n.
double inversions_tail(std::size_t n, std::size_t most) {
  std::vector<double> p(n * (n - 1) / 2 + 1, 0.0);
  p[0] = 1;
  std::size_t reach = 0;
  for (std::size_t k = 2; k <= n; ++k) {
    // The k-th element brings 0..k-1 inversions, each as likely.
    std::vector<double> next(p.size(), 0.0);
    reach += k - 1;
    double window = 0;
    for (std::size_t i = 0; i <= reach; ++i) {
      window += p[i];
      if (i >= k) window -= p[i - k];
      next[i] = std::max(0.0, window) / static_cast<double>(k);
    }
    p = std::move(next);
  }
  double sum = 0;
  for (std::size_t i = 0; i <= std::min(most, p.size() - 1); ++i) sum += p[i];
  return sum;
}

/// Twice the mid-ranks less n + 1: they sum to zero.
std::vector<std::int64_t> centred_ranks(Values v) {
  std::vector<std::int64_t> ranks(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) {
    std::int64_t twice = 1;
    for (const double x : v) twice += x < v[i] ? 2 : x == v[i] ? 1 : 0;
    ranks[i] = twice - static_cast<std::int64_t>(v.size()) - 1;
  }
  return ranks;
}

std::int64_t extent(std::span<const std::int64_t> ranks, PartialSums statistic) {
  std::int64_t sum = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (const std::int64_t rank : ranks) {
    sum += rank;
    low = std::min(low, sum);
    high = std::max(high, sum);
  }
  return statistic == PartialSums::range ? high - low : std::max(high, -low);
}

/// In 0..n-1. std::uniform_int_distribution differs between libraries.
std::size_t draw(std::mt19937_64& bits, std::size_t n) {
  return static_cast<std::size_t>((bits() >> 32U) * n >> 32U);
}

struct Fit {
  double rest = std::numeric_limits<double>::infinity();
  LevelChange change;
};

Fit best_step(Values v) {
  Fit best;
  for (std::size_t at = kShortestLevel; at + kShortestLevel <= v.size(); ++at) {
    const double before = middle(v.first(at));
    const double after = middle(v.subspan(at));
    const double rest = deviation(v.first(at), before) + deviation(v.subspan(at), after);
    if (rest < best.rest) best = {rest, {Shape::step, at, at, before, after}};
  }
  return best;
}

/// The slope through the origin with the smallest sum of absolute deviations: a weighted median.
double slope_from(Values v, double level) {
  std::vector<std::pair<double, double>> slopes;
  double total = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const auto distance = static_cast<double>(i + 1);
    slopes.emplace_back((v[i] - level) / distance, distance);
    total += distance;
  }
  std::sort(slopes.begin(), slopes.end());
  double weight = 0;
  for (const auto& [slope, share] : slopes) {
    weight += share;
    if (weight * 2 >= total) return slope;
  }
  return slopes.back().first;
}

Fit best_drift(Values v) {
  Fit best;
  for (std::size_t at = kShortestLevel; at + kShortestDrift <= v.size(); ++at) {
    const double before = middle(v.first(at));
    const Values rising = v.subspan(at);
    const double slope = slope_from(rising, before);
    double rest = deviation(v.first(at), before);
    for (std::size_t i = 0; i < rising.size(); ++i) {
      rest += std::fabs(rising[i] - before - slope * static_cast<double>(i + 1));
    }
    const double after = before + slope * static_cast<double>(rising.size());
    if (rest < best.rest) best = {rest, {Shape::drift, at, v.size() - 1, before, after}};
  }
  return best;
}

/// A line over the whole: Theil and Sen's slope.
Fit line(Values v) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < v.size(); ++i) {
    for (std::size_t j = i + 1; j < v.size(); ++j) {
      slopes.push_back((v[j] - v[i]) / static_cast<double>(j - i));
    }
  }
  const double slope = median(slopes);
  std::vector<double> starts;
  for (std::size_t i = 0; i < v.size(); ++i) {
    starts.push_back(v[i] - slope * static_cast<double>(i));
  }
  const double start = median(starts);
  const double end = start + slope * static_cast<double>(v.size() - 1);
  return {deviation(starts, start), {Shape::drift, 1, v.size() - 1, start, end}};
}

void search(Values v, std::size_t offset, double threshold, std::vector<LevelChange>& changes) {
  if (v.size() < kFewestPoints) return;
  if (mann_kendall(v) > threshold && level_test(v, PartialSums::largest, threshold) > threshold &&
      level_test(v, PartialSums::range, threshold) > threshold) {
    return;
  }
  Fit best = best_step(v);
  for (const Fit& fit : {best_drift(v), line(v)}) {
    if (fit.rest < best.rest) best = fit;
  }
  LevelChange change = best.change;
  const std::size_t at = change.first;
  change.first += offset;
  change.last += offset;
  search(v.first(at), offset, threshold, changes);
  changes.push_back(change);
  if (change.shape == Shape::step) search(v.subspan(at), offset + at, threshold, changes);
}

/// A step's levels once its neighbours are known.
void settle(Values v, std::vector<LevelChange>& changes) {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    LevelChange& c = changes[i];
    if (c.shape == Shape::drift) continue;
    const std::size_t from = i == 0 ? 0 : changes[i - 1].first;
    const std::size_t to = i + 1 < changes.size() ? changes[i + 1].first : v.size();
    c.before = middle(v.subspan(from, c.first - from));
    c.after = middle(v.subspan(c.first, std::max<std::size_t>(1, to - c.first)));
  }
}

double rise(const LevelChange& c) { return c.after - c.before; }

std::vector<LevelChange> merged(const std::vector<LevelChange>& changes, double small) {
  std::vector<LevelChange> out;
  bool is_creeping = false;
  for (const LevelChange& c : changes) {
    const bool is_small = std::fabs(rise(c)) < small;
    if (is_creeping && is_small && (rise(out.back()) > 0) == (rise(c) > 0)) {
      out.back().shape = Shape::drift;
      out.back().last = c.last;
      out.back().after = c.after;
    } else {
      out.push_back(c);
      is_creeping = is_small;
    }
  }
  return out;
}

}  // namespace

double mann_kendall(std::span<const double> values) {
  const std::size_t n = values.size();
  std::int64_t s = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      s += values[j] > values[i] ? 1 : values[j] < values[i] ? -1 : 0;
    }
  }
  const std::int64_t pairs = static_cast<std::int64_t>(n) * (static_cast<std::int64_t>(n) - 1) / 2;
  if (s == 0) return 1;
  if (n <= kExactPoints) {
    const auto inversions = static_cast<std::size_t>((pairs - std::abs(s)) / 2);
    return std::min(1.0, 2 * inversions_tail(n, inversions));
  }
  const auto count = static_cast<double>(n);
  const double deviation = std::sqrt(count * (count - 1) * (2 * count + 5) / 18);
  return std::erfc(static_cast<double>(std::abs(s) - 1) / deviation / std::sqrt(2.0));
}

double level_test(std::span<const double> values, PartialSums statistic, double threshold) {
  std::vector<std::int64_t> ranks = centred_ranks(values);
  const std::int64_t observed = extent(ranks, statistic);
  std::mt19937_64 bits(20261121);
  constexpr int kEnough = 20;
  const auto most = static_cast<std::int64_t>(std::ceil(kEnough / threshold));
  std::int64_t as_good = 0;
  for (std::int64_t drawn = 1; drawn <= most; ++drawn) {
    for (std::size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[draw(bits, i)]);
    as_good += extent(ranks, statistic) >= observed ? 1 : 0;
    if (as_good == kEnough) return static_cast<double>(kEnough) / static_cast<double>(drawn);
  }
  return static_cast<double>(as_good + 1) / static_cast<double>(most + 1);
}

std::vector<LevelChange> level_changes(std::span<const double> values, double threshold,
                                       double small) {
  std::vector<LevelChange> changes;
  search(values, 0, threshold, changes);
  settle(values, changes);
  return merged(changes, small);
}

}  // namespace rematch::compare
