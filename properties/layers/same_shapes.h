#pragma once

#include "properties/layers/layer.h"

namespace rematch {

// Members of layers that take two operands of one shape, and return a third of it.

inline void shape_of_two(ShapeWalk& s) {
  if (!(s.operand(1) == s.x())) {
    s.fail("operands of one shape", to_string(s.x()) + " and " + to_string(s.operand(1)));
  }
  s.same_output();
}

inline bool same_shapes(const Shape& x, const Shape& other) { return x == other; }

}  // namespace rematch
