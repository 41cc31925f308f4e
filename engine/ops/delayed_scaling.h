#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Divides x by `scale`, a tensor of one element of x's dtype. In training the scale then becomes,
/// in place, the mean of itself and of the largest |x|, so that a forward is scaled by what those
/// before it saw, as FP8 recipes with delayed scaling do. The gradient takes the scale as given.
/// A recomputation divides by what its forward divided by and does not change the scale again.
/// Saves the scale that was read.
Tensor delayed_scaling(const Tensor& x, Tensor& scale, bool train);

/// x as it is in float8 e4m3 under a delayed scale (Micikevicius et al. 2022), as FP8 recipes give
/// it to a product: x / s is rounded to the nearest float8, at most 448 in magnitude, and
/// multiplied by s again. s is the largest of `history` / 448, or 1 if that is 0. history[4] has
/// the largest |x| of as many forwards before this one, of x's dtype; in training that of this one
/// becomes its last. The gradient passes as if nothing were rounded. A recomputation rounds as its
/// forward did, and does not change the history again. Saves nothing. The op is delayed_scaling.
Tensor delayed_float8(const Tensor& x, Tensor& history, bool train);

}  // namespace rematch
