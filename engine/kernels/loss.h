#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

/// *out = the mean of (x - target)^2 over n elements, on the device within
/// ((64 + 4 + 3) u_T + (ceil(n / 1024) + 1) u_64) * the mean of the exact one.
REMATCH_DECLARE(void mse_forward(std::int64_t n, const T* x, const T* target, T* out));

/// gx = *g * 2 / n * (x - target).
REMATCH_DECLARE(void mse_backward(std::int64_t n, const T* g, const T* x, const T* target, T* gx));

/// *out = the mean over rows of -log_softmax(x)[row, target[row]]. log_probs[rows,cols] is filled
/// with log_softmax(x) for backward. Targets lie in [0, cols); on the device another target makes
/// *out NaN, and nothing outside the row is read. There, with m = max |x - top| in a row, an
/// element of log_probs is within (72 + 4 ln(cols) + m + |log_prob|) u_T + ceil(cols / 1024) u_64
/// of the exact one, and *out within the mean of that over rows, plus (rows + 1) u_64 and u_T of
/// its size.
REMATCH_DECLARE(void cross_entropy_forward(std::int64_t rows, std::int64_t cols, const T* x,
                                           const std::int32_t* target, T* log_probs, T* out));

/// gx = *g / rows * (exp(log_probs) - [col == target]).
REMATCH_DECLARE(void cross_entropy_backward(std::int64_t rows, std::int64_t cols, const T* g,
                                            const T* log_probs, const std::int32_t* target, T* gx));

#define REMATCH_LOSS_KERNELS(K) \
  K(mse_forward);               \
  K(mse_backward);              \
  K(cross_entropy_forward);     \
  K(cross_entropy_backward)

}  // namespace rematch
