#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Rotary positions for x[batch, positions, width]: the first `features` are those of `heads` heads
/// of an even number each. Features i and i + n / 2 of a head of n turn together by
/// position * 10000^(-2 i / n) radians, so that products of queries and keys depend on how far
/// apart they are. Other features are handed through. Saves nothing: the backward turns back.
Tensor rotary(const Tensor& x, std::int64_t features, std::int64_t heads);

}  // namespace rematch
