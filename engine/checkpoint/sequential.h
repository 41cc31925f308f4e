#pragma once

#include <span>

#include "engine/checkpoint/checkpoint.h"

namespace rematch {

/// Runs functions one after the other, cut into `segments` segments that are each one checkpoint.
///
/// The cut is PyTorch's: with n functions, every segment but the last has floor(n / segments) of
/// them, and the last has the rest. LastSegment::stored runs the last segment plain, as PyTorch
/// does: backward begins there, so a replay would come at once. With one segment nothing is then
/// checkpointed.
/// Throws std::invalid_argument("[checkpoint_sequential] segments must be in 1..7, got 9").
Tensors checkpoint_sequential(std::span<const Function> functions, int segments,
                              const Tensors& inputs, LastSegment last = LastSegment::stored,
                              const CheckpointOptions& options = {});

/// The functions one after the other, as one function. With early stop its replays end with the
/// function that saves last, or within it where more ops follow.
Function compose(std::span<const Function> functions);

}  // namespace rematch
