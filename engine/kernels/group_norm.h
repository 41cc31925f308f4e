#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// On the device a sum over the cols = c / groups * s elements of a set is within
// ((64 + 4) u_T + ceil(cols / 1024) u_64) * sum |terms| of the exact one. gw and gb are within
// ((1024 / s + 70) u_T + ceil(n s / 1024) u_64) * sum |terms|, with s = 1 within n u_64 * sum
// |terms| before they are rounded to T (gw's terms carry 3 roundings each).

/// Group normalisation of x[n,c,s] (Wu and He, 2018; s = 1 for rank 2): each sample's channels in
/// `groups` (which divides c) sets of neighbours, y = (x - mean) * rstd * w[channel] + b[channel]
/// with a set's mean and biased variance and rstd = 1 / sqrt(var + eps), summed as a row of
/// layer_norm_forward is. `w` and `b` may be null. mean[n * groups], rstd[n * groups] are for
/// backward.
REMATCH_DECLARE(void group_norm_forward(std::int64_t n, std::int64_t c, std::int64_t s,
                                        std::int64_t groups, const T* x, const T* w, const T* b,
                                        T eps, T* y, T* mean, T* rstd));

/// gx as layer_norm_backward has it, a set being a row; gw[c] = sum over n and s of gy * xhat,
/// gb[c] = sum over n and s of gy, both as channel_sums (engine/cpu/channels.h). `w`, gx, gw, gb
/// may be null.
REMATCH_DECLARE(void group_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s,
                                         std::int64_t groups, const T* gy, const T* x,
                                         const T* mean, const T* rstd, const T* w, T* gx, T* gw,
                                         T* gb));

#define REMATCH_GROUP_NORM_KERNELS(K) \
  K(group_norm_forward);              \
  K(group_norm_backward)

}  // namespace rematch
