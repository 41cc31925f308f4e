#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rematch::compare {

/// P(W+ >= w) for Wilcoxon's signed-rank statistic W+ of `n` differences without ties, when every
/// sign is a fair coin: exact up to kExactRanks differences, beyond that the normal approximation
/// with continuity correction, whose tails are heavier than the exact ones.
/// Sources: F. Wilcoxon, "Individual comparisons by ranking methods", 1945; the distribution as the
/// coefficients of prod (1 + x^i) / 2^n, and the approximation: M. Hollander, D. A. Wolfe and
/// E. Chicken, "Nonparametric Statistical Methods", 3rd edition, 2014, section 3.1.
double signed_rank_tail(int n, std::int64_t w);

inline constexpr int kExactRanks = 100;

/// The fewest differences whose signed-rank test can give a p-value of `p` or less: 2^-n <= p.
int fewest_differences(double p);

/// Where the centre of symmetry of paired differences lies, from their Walsh averages
/// (d_i + d_j) / 2, i <= j. Test and interval are two views of one thing: W+ of the differences
/// less c is the number of Walsh averages above c (J. W. Tukey, 1949; Hollander et al., sections
/// 3.2 and 3.3). Averages equal to c count against a rejection, so ties and zeros make the test
/// more careful, never less.
/// Assumes differences that are independent and symmetric around one centre; of their
/// distribution nothing else. Memory and time are of the order of n^2 log n.
class CentreOfDifferences {
 public:
  explicit CentreOfDifferences(std::span<const double> differences);

  int count() const { return n_; }
  /// The median of the Walsh averages (Hodges and Lehmann, 1963). There must be a difference.
  double estimate() const;
  struct Interval {
    double low;
    double high;
  };
  /// The exact confidence interval of `level`, in (0, 1); infinite where there are too few
  /// differences for the level.
  Interval interval(double level) const;
  /// The one-sided p-value of "the centre is at most c", small when it lies above.
  double p_above(double c) const;
  /// The one-sided p-value of "the centre is at least c", small when it lies below.
  double p_below(double c) const;

 private:
  int n_;
  std::vector<double> walsh_;  ///< Sorted.
};

/// Adjusted p-values of a family of tests after S. Holm, "A simple sequentially rejective multiple
/// test procedure", 1979: rejecting where the result is at most alpha makes one false rejection or
/// more in the whole family with a probability of at most alpha, however the tests depend on each
/// other. In the order of `p`.
std::vector<double> holm(std::span<const double> p);

}  // namespace rematch::compare
