#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// y[n, m] = x[n, k] w[m, k]^T + b[m]; `b` may be undefined, and all dimensions of x but the last
/// count as rows. Saves x when w requires grad and w when x does. On bfloat16 operands, to which
/// autocast casts float32 ones, sums are in float32 and results and gradients are rounded once;
/// saved is then what is bfloat16.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace rematch
