#pragma once

#include <array>
#include <cmath>

#include "properties/layers/layer.h"

/// What the residual branches that samples skip have in common.
namespace rematch {

inline void branch_shape(ShapeWalk& s) {
  if (s.x().rank() == 4) s.fail("an input of rank 2 or 3", to_string(s.x()));
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

}  // namespace rematch
