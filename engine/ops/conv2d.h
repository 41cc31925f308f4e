#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Cross-correlation of x[n, c, h, w] with weight[o, c, kh, kw] plus bias[o] (may be undefined),
/// same stride and zero padding in both directions. Saves x when weight requires grad and weight
/// when x does. bfloat16 and autocast as for linear().
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              std::int64_t stride = 1, std::int64_t padding = 0);

}  // namespace rematch
