#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Divides x by `scale`, a tensor of one element of x's dtype. In training the scale then becomes,
/// in place, the mean of itself and of the largest |x|, so that a forward is scaled by what those
/// before it saw, as FP8 recipes with delayed scaling do. The gradient takes the scale as given.
/// A recomputation divides by what its forward divided by and does not change the scale again.
/// Saves the scale that was read.
Tensor delayed_scaling(const Tensor& x, Tensor& scale, bool train);

}  // namespace rematch
