#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Divides by the root of the mean square over the last dimension, then scales by weight[d]:
/// x / sqrt(mean(x^2) + eps) * weight. Saves x, that factor per row, and weight when x requires
/// grad.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);

}  // namespace rematch
