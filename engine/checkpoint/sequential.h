#pragma once

#include <span>

#include "engine/checkpoint/checkpoint.h"

namespace rematch {

/// Runs functions one after the other, in `segments` segments. Each segment is one checkpoint.
///
/// The partition is PyTorch's: with n functions, every segment but the last has floor(n / segments)
/// of them, and the last has the rest. LastSegment::stored runs the last segment plain, as PyTorch
/// does: backward starts there, so it would be recomputed immediately. With one segment, nothing is
/// then checkpointed. Throws std::invalid_argument("[checkpoint_sequential] segments must be in
/// 1..7, got 9").
Tensors checkpoint_sequential(std::span<const Function> functions, int segments,
                              const Tensors& inputs, LastSegment last = LastSegment::stored,
                              const CheckpointOptions& options = {});

/// Returns one function that runs the given functions in order. Early stop ends its recomputation
/// when the function that made the last save has returned, provided that no op or clone() followed
/// that save inside this function in the forward. Otherwise it ends at the save, as for any other
/// function. (Ops are not watched under DeterminismCheck::none without a policy; it then ends at
/// the save.)
Function compose(std::span<const Function> functions);

}  // namespace rematch
