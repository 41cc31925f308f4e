#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// Sums over a channel are channel_sums (engine/cpu/channels.h). On the device, with s > 1, one is
// within ((1024 / s + 66 + 4) u_T + ceil(n s / 1024) u_64) * sum |terms| of the exact one
// (engine/math/lane_order.h). With s = 1 the terms are added in double, in chunks of 128 whose sums
// are added in ascending order.

/// Batch normalisation over n and s of x[n,c,s] (Ioffe and Szegedy, 2015; s = 1 for 1d):
/// y = (x - mean) * invstd * w + b with the batch's mean and biased variance, and
/// invstd = 1 / sqrt(var + eps). `w` and `b` may be null (1 and 0). mean[c] and invstd[c] are saved
/// for backward. When not null, running_mean and running_var become
/// (1 - momentum) * running + momentum * batch, with the unbiased variance, as in torch.
REMATCH_DECLARE(void batch_norm_train(std::int64_t n, std::int64_t c, std::int64_t s, const T* x,
                                      const T* w, const T* b, T eps, T* y, T* mean, T* invstd,
                                      T* running_mean, T* running_var, T momentum));

/// The same formula with the running statistics; the ones used are saved in mean_out, invstd_out.
REMATCH_DECLARE(void batch_norm_eval(std::int64_t n, std::int64_t c, std::int64_t s, const T* x,
                                     const T* w, const T* b, const T* running_mean,
                                     const T* running_var, T eps, T* y, T* mean_out,
                                     T* invstd_out));

/// Gradients of either; `train` says whether mean and invstd depend on x. With xhat = (x - mean) *
/// invstd: gb = sum gy, gw = sum gy * xhat, and gx = w * invstd * gy in eval or
/// w * invstd * (gy - gb / (n s) - xhat * gw / (n s)) in training. `w`, gx, gw, gb may be null.
REMATCH_DECLARE(void batch_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s,
                                         const T* gy, const T* x, const T* mean, const T* invstd,
                                         const T* w, bool train, T* gx, T* gw, T* gb));

#define REMATCH_BATCH_NORM_KERNELS(K) \
  K(batch_norm_train);                \
  K(batch_norm_eval);                 \
  K(batch_norm_backward)

}  // namespace rematch
