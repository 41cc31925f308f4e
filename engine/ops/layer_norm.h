#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Normalises over the last dimension, then scales by weight[d] and shifts by bias[d]. Saves x,
/// mean and 1/std per row, and weight when x requires grad.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

}  // namespace rematch
