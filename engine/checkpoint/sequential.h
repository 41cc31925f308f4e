#pragma once

#include <span>

#include "engine/checkpoint/checkpoint.h"

namespace rematch {

/// Runs functions one after the other, cut into `segments` segments that are each one checkpoint.
///
/// The cut is PyTorch's: with n functions, every segment but the last has floor(n / segments) of
/// them, and the last has the rest. LastSegment::stored runs the last segment plain, as PyTorch
/// does: backward begins there, so a recomputation would come at once. With one segment nothing is
/// then checkpointed. Throws std::invalid_argument("[checkpoint_sequential] segments must be
/// in 1..7, got 9").
Tensors checkpoint_sequential(std::span<const Function> functions, int segments,
                              const Tensors& inputs, LastSegment last = LastSegment::stored,
                              const CheckpointOptions& options = {});

/// The functions one after the other, as one function. Early stop ends a recomputation of it when
/// the function that saves last has returned, provided that in the forward nothing came after the
/// save in that function; else, as everywhere, at the save. (Nothing: no op, no clone; these are
/// seen unless DeterminismCheck::none without a policy leaves the ops unwatched.)
Function compose(std::span<const Function> functions);

}  // namespace rematch
