#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rematch::compare {

/// The fewest points in which a change is looked for.
inline constexpr std::size_t kFewestPoints = 8;

/// The two-sided p-value of the Mann-Kendall test for a trend: how often values in random order are
/// as monotone as these. Exact up to 100 values, a normal approximation beyond; ties count as no
/// evidence. Sources: H. B. Mann, "Nonparametric tests against trend", 1945; M. G. Kendall, "Rank
/// correlation methods", 1975; the distribution as that of inversions of a permutation.
double mann_kendall(std::span<const double> values);

/// The p-value of a test for a change of level at an unknown place: how often values in random
/// order have partial sums of their ranks that are as large as these are, or that range as far.
/// Pettitt takes the largest, which overlooks a rise that is undone; the range, as of Levin and
/// Kline, sees that and is a little weaker elsewhere. Estimated from random orders of a fixed seed,
/// enough to tell p-values around `threshold`, and stopped early once it is clear that p lies above
/// it. Sources: A. N. Pettitt, "A non-parametric approach to the change-point problem", 1979 (whose
/// approximation of p is far too careful for the dozen points that a history starts with);
/// B. Levin and J. Kline, "The cusum test of homogeneity", 1985; the stopping: J. Besag and
/// P. Clifford, "Sequential Monte Carlo p-values", 1991.
enum class PartialSums { largest, range };
double level_test(std::span<const double> values, PartialSums statistic, double threshold);

/// How many tests level_changes() makes of a series as a whole.
inline constexpr int kTestsPerSeries = 3;

/// A change of level of a series.
struct LevelChange {
  enum class Shape {
    step,  ///< From one point to the next.
    drift  ///< Bit by bit, from `first` to `last`.
  };
  Shape shape = Shape::step;
  std::size_t first = 0;  ///< The first point that is changed.
  std::size_t last = 0;   ///< Where the change is over; a step ends where it begins.
  double before = 0;      ///< The level before, a median.
  double after = 0;       ///< The level afterwards; of a drift that goes on, at the last point.
};

/// The changes of level in a series, in order: where one of the three tests rejects at `threshold`,
/// the series is described by the step, or by the drift that lasts to its end, that leaves the
/// smaller sum of absolute deviations, and what lies on either side is searched again (binary
/// segmentation, A. J. Scott and M. Knott, 1974). Neighbouring changes of one direction that
/// are each smaller than `small` are one drift. Deterministic.
std::vector<LevelChange> level_changes(std::span<const double> values, double threshold,
                                       double small);

}  // namespace rematch::compare
