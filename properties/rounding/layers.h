#pragma once

#include <vector>

#include "engine/tensor/shape.h"
#include "properties/layers/spec.h"
#include "properties/rounding/tape.h"
#include "properties/rounding/vars.h"

namespace rematch::rounding {

/// A layer that is to run on a tape.
struct LayerRun {
  Tape& tape;
  const LayerSpec& spec;
  bool train = true;
  /// Of operand 0.
  Shape shape;
  /// Of operand 1, if there is one.
  Shape other;
  /// Of output 0.
  Shape output;
  std::vector<Vars> operands;
  std::vector<Vars> parameters;
  /// Running mean and variance; training replaces them.
  std::vector<Vars> buffers = {};
};

/// Whether a run of the layer follows from its operands alone, by an arithmetic that is known here.
bool is_determined(const LayerSpec& spec, bool train);

/// The outputs of a layer that is_determined().
std::vector<Vars> run(LayerRun& layer);

/// The loss of rows of outputs.
Tape::Var mean_squared_error(Tape& tape, const Vars& x, const std::vector<double>& target);
/// `target`: the class of each row.
Tape::Var cross_entropy(Tape& tape, const Vars& x, const std::vector<double>& target);

}  // namespace rematch::rounding
