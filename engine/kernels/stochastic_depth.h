#pragma once

#include "engine/kernels/declare.h"
#include "engine/math/stochastic_depth.h"

namespace rematch {

// Forwards are one launch on the device, the backward one for each gradient. There a sum over rows
// is one thread's: for layers of few rows.

/// factors[i] = math::exit_factor() of sample i: whether its values make it take the branch.
REMATCH_DECLARE(void exit_factors(const math::DepthShape& s, const T* x, T* factors));

/// y = x + factor * x weight^T with the factor of each sample; samples whose factor is 0 are
/// copied. `factors` may be null: all are 1.
REMATCH_DECLARE(void stochastic_depth_forward(const math::DepthShape& s, const T* x,
                                              const T* weight, const T* factors, T* y));

/// Gradients that are null are not wanted; `x` may be null unless that of the weight is, and
/// `weight` unless that of x is.
REMATCH_DECLARE(void stochastic_depth_backward(const math::DepthShape& s, const T* gy, const T* x,
                                               const T* weight, const T* factors, T* gx,
                                               T* gweight));

#define REMATCH_STOCHASTIC_DEPTH_KERNELS(K) \
  K(exit_factors);                          \
  K(stochastic_depth_forward);              \
  K(stochastic_depth_backward)

}  // namespace rematch
