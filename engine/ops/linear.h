#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// y[n, m] = x[n, k] w[m, k]^T + b[m]; `b` may be undefined. Saves x when w requires grad and w
/// when x does.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace rematch
