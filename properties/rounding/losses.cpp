#include "properties/rounding/losses.h"

#include <span>

#include "properties/bounds/functions.h"

namespace rematch::rounding {

Bounds::Var mean_squared_error(Bounds& t, const Vars& x, const std::vector<double>& target) {
  Vars r;
  for (std::size_t i = 0; i < x.size(); ++i) {
    r.push_back(t.plus(x[i]).plus(t.leaf({target[i], 0}), -1).sum());
  }
  for (const Var v : r) t.plus_product(v, v, 1 / static_cast<double>(r.size()));
  return t.sum();
}

Bounds::Var cross_entropy(Bounds& t, const Vars& x, const std::vector<double>& target) {
  const std::size_t width = x.size() / target.size();
  Vars losses;
  for (std::size_t row = 0; row < target.size(); ++row) {
    const Exponentials e = exponentials(t, std::span(x).subspan(row * width, width));
    const Var total = log(t, e.sum);
    losses.push_back(
        t.plus(total).plus(e.shifted[static_cast<std::size_t>(target[row])], -1).sum());
  }
  return mean_of(t, losses);
}

}  // namespace rematch::rounding
