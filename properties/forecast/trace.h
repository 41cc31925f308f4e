#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "properties/record/record.h"

namespace rematch {

/// The trace of a symbolic run: the events of the protocol's first two steps, which all
/// later ones repeat, and what the first forward counts with all its backwards.
struct Trace {
  std::vector<LiveReading> live;
  /// Which of the events is the first of a recomputation.
  std::vector<std::size_t> recomputations;

  /// By layer: executions, and those that computed results instead of recalling them.
  std::vector<int> executions;
  std::vector<int> computations;
  /// By parameter: how often its gradient hook fired.
  std::vector<int> hooks;
  /// requires_grad of each output of each layer after its first execution, and of the model's.
  std::vector<std::vector<bool>> grad_flags;
  std::vector<bool> output_flags;
  /// After the first forward.
  std::int64_t saved_bytes = 0;
  std::int64_t offloaded_bytes = 0;
  /// By layer: which of its operands and parameters required grad, one bit each, when it was first
  /// recorded; 0 if it never was.
  std::vector<std::uint64_t> recorded_with;
  /// By layer: it was recorded with others than when its facts were measured, so what it saves is
  /// not known.
  std::vector<bool> saves_unknown;
  /// Some facts of the case are not known, those or others.
  bool facts_unknown = false;
  /// A recomputation drew without the random state of its forward.
  bool drew_afresh = false;

  /// Formulas of the gradients when a step ends: those of parameter p begin at step * parameters.
  std::vector<std::uint64_t> parameter_gradients;
  /// Ids of the gradients of the model inputs, by forward.
  std::vector<std::uint64_t> input_gradients;

  /// Empties the trace and keeps its memory.
  void clear() {
    live.clear();
    recomputations.clear();
    executions.clear();
    computations.clear();
    hooks.clear();
    grad_flags.clear();
    output_flags.clear();
    saved_bytes = offloaded_bytes = 0;
    recorded_with.clear();
    saves_unknown.clear();
    facts_unknown = false;
    drew_afresh = false;
    parameter_gradients.clear();
    input_gradients.clear();
  }
};

}  // namespace rematch
