#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Largest value of each kernel x kernel window of x[n, c, h, w]; the first of equals wins. Saves
/// the int32 positions. Padding must be at most half the kernel.
Tensor max_pool2d(const Tensor& x, std::int64_t kernel, std::int64_t stride,
                  std::int64_t padding = 0);

/// Mean of each window, padding counted as zeros. Saves nothing.
Tensor avg_pool2d(const Tensor& x, std::int64_t kernel, std::int64_t stride,
                  std::int64_t padding = 0);

}  // namespace rematch
