#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace rematch::rounding {

/// A real number, and how far from it that of a correct implementation may be.
struct Bounded {
  double value = 0;
  double error = 0;
};

/// The format of numbers that an implementation computes with.
struct Format {
  /// The largest relative error of a rounding.
  double roundoff = 0;
  /// The most that underflow may take from a result.
  double smallest = 0;
  double largest = 0;
};

/// Thrown by an analysis that would grow beyond its limit.
class TooLarge : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A running error analysis of a computation and of its derivatives, scalar by scalar: each number
/// is computed in float64, along with a bound on its distance from what a correct implementation
/// with unit roundoff u gets.
///
/// 1. A number that is a sum of n products is off by what its operands are off by, to all orders,
///    and by gamma(n + 4) times the sum of the products' magnitudes, with gamma(k) = k u / (1 - k
///    u). That holds for every order of summation, with or without fused steps (Higham, Accuracy
///    and Stability of Numerical Algorithms, chapters 3 and 4). The 4 is for the product, and for
///    steps that implementations insert: a factor distributed over a sum, a mean by a reciprocal.
/// 2. A smooth function of one number is off by Taylor's formula with the remainder bounded, and
///    by 8 u of its magnitude: libraries promise 1 to 4 ulp.
/// 3. At a kink, every branch that is within reach is possible. The derivative is then off by the
///    difference of the branches. A value that jumps there has an infinite error.
/// 4. The backward is a computation like any other: rule 1 applies to each gradient, which is a sum
///    over the uses of a number, and local derivatives are off by what 2 and 3 say.
///
/// 5. Nothing is said of what may overflow on the way: its error is infinite.
///
/// The model leaves out methods that are not stable in the ordinary sense, such as variances
/// from a difference of large sums; and that fused attention sums gradient * output over features
/// where the formula sums gradient * probability over keys.
class Bounds {
 public:
  /// A number of the analysis.
  using Var = int;

  /// `most_edges`: the limit.
  Bounds(const Format& format, std::size_t most_edges) : format_(format), most_edges_(most_edges) {}

  /// A number that is given.
  Var leaf(Bounded number);

  /// Adds `factor` times a, or times a times b, to the sum that sum() ends.
  Bounds& plus(Var a, double factor = 1);
  Bounds& plus_product(Var a, Var b, double factor = 1);
  Var sum();

  /// A smooth function and its first two derivatives at x.
  struct Smooth {
    double value = 0;
    double first = 0;
    double second = 0;
    /// Bounds on the magnitudes of the second and third derivative wherever x may be.
    double most_second = 0;
    double most_third = 0;
    /// Magnitude of the terms that the value and the first derivative are computed from.
    double magnitude = 0;
    double first_magnitude = 0;
  };
  Var smooth(Var x, const Smooth& f);
  /// x where it is positive, and slope times x elsewhere.
  Var rectified(Var x, double slope);
  /// x itself, whose derivative counts `factor` times.
  Var hooked(Var x, double factor);
  /// A number that x was rounded to, with the derivatives of x as if it were x itself.
  Var rounded(Var x, Bounded to);
  /// A number that may be anything, and so may its derivatives by these.
  Var undecided(const std::vector<Var>& by);
  /// The largest of some numbers.
  Var largest(const std::vector<Var>& of);

  Bounded operator[](Var x) const { return nodes_[static_cast<std::size_t>(x)].number; }
  double low(Var x) const { return (*this)[x].value - (*this)[x].error; }
  double high(Var x) const { return (*this)[x].value + (*this)[x].error; }

  /// The derivatives of `root` by every number before it. Where nothing leads from a number to the
  /// root, its derivative is an exact zero, and only there.
  std::vector<Bounded> gradients(Var root) const;

 private:
  struct Node {
    Bounded number;
    std::size_t first_edge = 0;
  };
  /// The derivative of a node by another.
  struct Edge {
    Var from = 0;
    Bounded derivative;
  };

  double gamma(double steps) const;
  /// Error by rounding of a sum of so many products.
  double rounding(int products, double magnitude) const;
  void check_size() const;
  void edge(Var from, Bounded derivative);
  Var node(Bounded number);

  Format format_;
  std::size_t most_edges_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::size_t first_edge_ = 0;
  /// The sum that is being made. Other numbers may come in meanwhile.
  std::vector<Edge> terms_;
  Bounded sum_;
  double magnitude_ = 0;
  int products_ = 0;
};

}  // namespace rematch::rounding
