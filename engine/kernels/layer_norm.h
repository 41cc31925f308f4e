#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// On the device a sum along a row is within ((64 + 4) u_T + ceil(cols / 1024) u_64) * sum |terms|
// of the exact one; gw and gb are within (min(rows, 128) u_T + ceil(rows / 128) u_64) * sum |terms|
// (gw's terms carry 3 roundings each).

/// Layer normalisation of each row of x[rows,cols] (Ba et al., 2016):
/// y = (x - mean) * rstd * w[cols] + b[cols], with the row's mean and biased variance and
/// rstd = 1 / sqrt(var + eps). `w` and `b` may be null. mean[rows], rstd[rows] are for backward.
/// A null `mean` makes it RMS normalisation (Zhang and Sennrich, 2019): y = x * rstd * w + b with
/// rstd = 1 / sqrt(mean(x^2) + eps).
REMATCH_DECLARE(void layer_norm_forward(std::int64_t rows, std::int64_t cols, const T* x,
                                        const T* w, const T* b, T eps, T* y, T* mean, T* rstd));

/// With xhat = (x - mean) * rstd and h = gy * w: gx = rstd * (h - mean(h) - xhat * mean(h * xhat)),
/// gw[cols] = sum over rows of gy * xhat, gb[cols] = sum over rows of gy, both as column_sums
/// (engine/cpu/reduce.h) in T. `w`, gx, gw, gb may be null. With a null `mean`, as forward was
/// given one, xhat = x * rstd and gx = rstd * (h - xhat * mean(h * xhat)).
REMATCH_DECLARE(void layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* gy,
                                         const T* x, const T* mean, const T* rstd, const T* w,
                                         T* gx, T* gw, T* gb));

#define REMATCH_LAYER_NORM_KERNELS(K) \
  K(layer_norm_forward);              \
  K(layer_norm_backward)

}  // namespace rematch
