#pragma once

#include "engine/math/stochastic_depth.h"

namespace rematch::cpu {

/// Who takes the branch by its values: math::exit_factor() of each sample.
template <typename T>
void exit_factors(const math::DepthShape& s, const T* x, T* factors);

/// y = x + factor * x weight^T with the factor of each sample; samples whose factor is 0 are
/// copied. `factors` may be null: all are 1.
template <typename T>
void stochastic_depth_forward(const math::DepthShape& s, const T* x, const T* weight,
                              const T* factors, T* y);

/// Gradients that are null are not wanted; `x` may be null unless that of the weight is, and
/// `weight` unless that of x is.
template <typename T>
void stochastic_depth_backward(const math::DepthShape& s, const T* gy, const T* x, const T* weight,
                               const T* factors, T* gx, T* gweight);

}  // namespace rematch::cpu
