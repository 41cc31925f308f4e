#pragma once

#include <cstdint>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"

namespace rematch {

/// What closed-form arithmetic on the case says its checkpointed record must show, computed from
/// the case alone, never from a run.
struct Forecast {
  /// Expected executions of each layer for one forward with all its backwards.
  std::vector<int> executions;
  /// Expected gradient-hook firings per parameter, for one forward with all its backwards.
  std::vector<int> hooks;
  /// requires_grad of output k of layer i after its first execution, checkpointed run: flags[i][k].
  std::vector<std::vector<bool>> grad_flags;
  /// The same for the outputs as the rest of the model sees them at the end: live[layers].
  std::vector<bool> output_flags;
  /// Layers whose parameters get no gradient because a reentrant segment saw no input that
  /// requires grad (the frozen first block).
  std::vector<int> frozen_layers;
  /// Bytes under the tag `saved` after one forward (loss included), checkpointed and plain.
  std::int64_t saved_bytes = 0;
  std::int64_t plain_saved_bytes = 0;
  /// Words by which one forward advances the default stream.
  std::uint64_t words_per_forward = 0;
  /// false when a segment that draws is replayed without its random state: masks and gradients of
  /// the replay are then fresh, and value comparisons with the plain run are meaningless.
  bool values_comparable = true;
  /// exact_parameters[p] is false for the one legitimate exception: a tied parameter used in
  /// reentrant segments whose gradient was not empty when the backward began, so that its sum has
  /// another order. From the first such accumulation on, everything downstream is inexact too:
  /// exact_until_step is the last step (inclusive) whose other values must agree to the bit.
  std::vector<bool> exact_parameters;
  int exact_until_step = 1 << 20;
};

Forecast forecast(const Case& c, const Geometry& geometry);

}  // namespace rematch
