#pragma once

#include <vector>

#include "engine/tensor/shape.h"
#include "properties/bounds/bounds.h"
#include "properties/bounds/vars.h"
#include "properties/layers/spec.h"

namespace rematch::rounding {

/// A layer that is to run with bounds.
struct LayerRun {
  Bounds& bounds;
  const LayerSpec& spec;
  bool train = true;
  /// Shapes of operand 0, of operand 1, if there is one, and of output 0.
  Shape shape;
  Shape other;
  Shape output;
  std::vector<Vars> operands;
  std::vector<Vars> parameters;
  /// Training replaces them.
  std::vector<Vars> buffers = {};

  /// One output: function(v) for each element v of operand 0.
  template <class Function>
  std::vector<Vars> each(const Function& function) const {
    return {map(operands[0], function)};
  }
};

/// As Layer::bounds, for a function of each element.
template <Var (*function)(Bounds&, Var)>
std::vector<Vars> each(LayerRun& l) {
  return l.each([&](Var v) { return function(l.bounds, v); });
}

}  // namespace rematch::rounding
