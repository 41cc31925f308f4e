#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// mean((x - target)^2), a scalar; the gradient flows to x only. Saves x and target.
Tensor mse_loss(const Tensor& x, const Tensor& target);

/// Mean over rows of -log softmax(x)[target]; x[rows, classes], target int32[rows] in
/// [0, classes). Saves the log-probabilities and target.
Tensor cross_entropy(const Tensor& x, const Tensor& target);

}  // namespace rematch
