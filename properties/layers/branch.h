#pragma once

#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "properties/layers/layer.h"

/// Members that the kinds with a residual branch that samples skip have in common.
namespace rematch {

inline void branch_shape(ShapeWalk& s) {
  if (s.x().rank() > 3) s.fail("an input of rank 2 or 3", to_string(s.x()));
  const std::int64_t width = s.width();
  s.product_of(std::array{width, width});
  const double most = 1 / std::sqrt(static_cast<double>(width));
  s.parameter("weight", Shape{width, width}, -most, most);
  s.same_output();
}

/// `skipped`: some samples may skip it, so it saves the factor of each.
inline void branch_facts(FactsWriter& w, bool skipped) {
  using What = FactsWriter::What;
  using When = FactsWriter::When;
  w.save(What::operand, 0, When::parameter_requires_grad, 0);
  w.save(What::parameter, 0, When::operand_requires_grad, 0);
  if (skipped) w.save_own(w.x[0] * w.item);
}

namespace rounding {

/// A residual branch that every sample takes, or only those that do not exit. Where rounding
/// decides whether one does, nothing is said of its rows.
inline std::vector<Vars> branch_bounds(LayerRun& l, bool exits) {
  Bounds& t = l.bounds;
  const Vars& x = l.operands[0];
  const Vars& weight = l.parameters[0];
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  const auto sample = static_cast<std::size_t>(extent_from(l.shape, 1));
  Vars y;
  for (std::size_t row = 0; row < x.size(); row += width) {
    const auto values = std::span(x).subspan(row, width);
    const Var decides = x[row - row % sample];
    if (exits && t.low(decides) > 0) {
      y.insert(y.end(), values.begin(), values.end());
      continue;
    }
    if (exits && !(t.high(decides) <= 0)) {
      Vars of(values.begin(), values.end());
      of.insert(of.end(), weight.begin(), weight.end());
      const Var anything = t.undecided(of);
      for (std::size_t o = 0; o < width; ++o) y.push_back(t.undecided({anything}));
      continue;
    }
    for (std::size_t o = 0; o < width; ++o) {
      for (std::size_t i = 0; i < width; ++i) t.plus_product(x[row + i], weight[o * width + i]);
      const Var branch = t.sum();
      y.push_back(t.plus(x[row + o]).plus(branch).sum());
    }
  }
  return {y};
}

}  // namespace rounding
}  // namespace rematch
