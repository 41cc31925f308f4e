#pragma once

#include <cstdint>

namespace rematch::cpu {

/// Group normalisation of x[n,c,s] (Wu and He, 2018; s = 1 for rank 2): each sample's channels in
/// `groups` (which divides c) sets of neighbours, y = (x - mean) * rstd * w[channel] + b[channel]
/// with a set's mean and biased variance and rstd = 1 / sqrt(var + eps), summed as a row of
/// layer_norm_forward is. `w` and `b` may be null. mean[n * groups], rstd[n * groups] are for
/// backward.
template <typename T>
void group_norm_forward(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t groups,
                        const T* x, const T* w, const T* b, T eps, T* y, T* mean, T* rstd);

/// gx as layer_norm_backward has it, a set being a row; gw[c] = sum over n and s of gy * xhat,
/// gb[c] = sum over n and s of gy, both as channel_sums (channels.h). `w`, gx, gw, gb may be null.
template <typename T>
void group_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t groups,
                         const T* gy, const T* x, const T* mean, const T* rstd, const T* w, T* gx,
                         T* gw, T* gb);

}  // namespace rematch::cpu
