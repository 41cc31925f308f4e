#include "properties/bounds/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace rematch::rounding {
namespace {

/// Roundings of a sum of products beside its additions.
constexpr double kExtraSteps = 4;
/// Error of a library's function, in units of roundoff.
constexpr double kFunctionSteps = 8;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The error that a sum of errors means: products of zero and infinity are none.
double known(double error) { return std::isnan(error) ? kInfinity : error; }

double reach(Bounded x) { return std::fabs(x.value) + x.error; }

/// Error of a product, before it is rounded.
double product_error(Bounded a, Bounded b) {
  return std::fabs(a.value) * b.error + a.error * std::fabs(b.value) + a.error * b.error;
}

}  // namespace

double Bounds::gamma(double steps) const {
  const double share = steps * format_.roundoff;
  return share < 1 ? share / (1 - share) : kInfinity;
}

double Bounds::rounding(int products, double magnitude) const {
  // A mean may be divided at the end.
  if (magnitude * products >= format_.largest) return kInfinity;
  const double steps = products + kExtraSteps;
  return gamma(steps) * magnitude + steps * format_.smallest;
}

void Bounds::check_size() const {
  if (edges_.size() + terms_.size() < most_edges_) return;
  throw TooLarge("the computation is too large to be analysed");
}

void Bounds::edge(Var from, Bounded derivative) {
  check_size();
  edges_.push_back({from, derivative});
}

Bounds::Var Bounds::node(Bounded number) {
  number.error = known(number.error);
  nodes_.push_back({number, std::exchange(first_edge_, edges_.size())});
  return static_cast<Var>(nodes_.size()) - 1;
}

Bounds::Var Bounds::leaf(Bounded number) { return node(number); }

Bounds& Bounds::plus(Var a, double factor) {
  const Bounded x = (*this)[a];
  sum_.value += factor * x.value;
  sum_.error += std::fabs(factor) * x.error;
  magnitude_ += std::fabs(factor) * reach(x);
  ++products_;
  check_size();
  terms_.push_back({a, {factor, 0}});
  return *this;
}

Bounds& Bounds::plus_product(Var a, Var b, double factor) {
  const Bounded x = (*this)[a];
  const Bounded y = (*this)[b];
  const double scale = std::fabs(factor);
  sum_.value += factor * x.value * y.value;
  sum_.error += scale * product_error(x, y);
  magnitude_ += scale * reach(x) * reach(y);
  ++products_;
  check_size();
  terms_.push_back({a, {factor * y.value, scale * y.error}});
  terms_.push_back({b, {factor * x.value, scale * x.error}});
  return *this;
}

Bounds::Var Bounds::sum() {
  sum_.error += rounding(products_, magnitude_);
  magnitude_ = 0;
  products_ = 0;
  edges_.insert(edges_.end(), terms_.begin(), terms_.end());
  terms_.clear();
  return node(std::exchange(sum_, {}));
}

Bounds::Var Bounds::smooth(Var x, const Smooth& f) {
  const double e = (*this)[x].error;
  const auto error = [&](double first, double most_second, double magnitude) {
    if (magnitude >= format_.largest) return kInfinity;
    return std::fabs(first) * e + most_second * e * e / 2 +
           kFunctionSteps * (format_.roundoff * magnitude + format_.smallest);
  };
  edge(x, {f.first, known(error(f.second, f.most_third, f.first_magnitude))});
  return node({f.value, error(f.first, f.most_second, f.magnitude)});
}

Bounds::Var Bounds::rectified(Var x, double slope) {
  const Bounded at = (*this)[x];
  const double factor = at.value > 0 ? 1 : slope;
  // An exact zero is on the side of the slope, by convention.
  const bool kink = at.error > 0 && std::fabs(at.value) <= at.error;
  const double widest = kink ? std::max(1.0, std::fabs(slope)) : std::fabs(factor);
  const double rounding = slope == 0 ? 0 : kExtraSteps * format_.roundoff;
  edge(x, {factor, (kink ? 1 - slope : 0) + rounding});
  return node({factor * at.value, widest * at.error + rounding * std::fabs(at.value)});
}

Bounds::Var Bounds::hooked(Var x, double factor) {
  edge(x, {factor, kExtraSteps * format_.roundoff * std::fabs(factor)});
  return node((*this)[x]);
}

Bounds::Var Bounds::rounded(Var x, Bounded to) {
  edge(x, {1, 0});
  return node(to);
}

Bounds::Var Bounds::undecided(const std::vector<Var>& by) {
  for (const Var x : by) edge(x, {0, kInfinity});
  return node({0, kInfinity});
}

Bounds::Var Bounds::largest(const std::vector<Var>& of) {
  Var best = of.front();
  double bottom = low(best);
  double top = high(best);
  for (const Var x : of) {
    if ((*this)[x].value > (*this)[best].value) best = x;
    bottom = std::max(bottom, low(x));
    top = std::max(top, high(x));
  }
  const auto rivals =
      std::count_if(of.begin(), of.end(), [&](Var x) { return x != best && high(x) >= bottom; });
  for (const Var x : of) {
    const bool rival = x != best && high(x) >= bottom;
    if (x != best && !rival) continue;
    edge(x, {x == best ? 1.0 : 0.0, rivals > 0 ? 1.0 : 0.0});
  }
  const double value = (*this)[best].value;
  return node({value, std::max(top - value, value - bottom)});
}

std::vector<Bounded> Bounds::gradients(Var root) const {
  struct Sum {
    double magnitude = 0;
    int terms = 0;
  };
  const auto size = static_cast<std::size_t>(root) + 1;
  std::vector<Bounded> found(size);
  std::vector<Sum> sums(size);
  found.back() = {1, 0};
  for (std::size_t z = size; z-- > 0;) {
    Bounded& g = found[z];
    if (sums[z].terms > 0) {
      g.error = known(g.error + rounding(sums[z].terms, sums[z].magnitude));
    } else if (z + 1 != size) {
      continue;
    }
    const std::size_t end = z + 1 < nodes_.size() ? nodes_[z + 1].first_edge : edges_.size();
    for (std::size_t i = nodes_[z].first_edge; i < end; ++i) {
      const Edge& edge = edges_[i];
      const auto from = static_cast<std::size_t>(edge.from);
      found[from].value += edge.derivative.value * g.value;
      found[from].error += product_error(edge.derivative, g);
      sums[from].magnitude += reach(edge.derivative) * reach(g);
      ++sums[from].terms;
    }
  }
  return found;
}

}  // namespace rematch::rounding
