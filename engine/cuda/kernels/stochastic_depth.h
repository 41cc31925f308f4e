#pragma once

#include "engine/math/stochastic_depth.h"

namespace rematch::cuda {

// engine/cpu/stochastic_depth.h on the device: pointers are the device's, work goes to stream(),
// and every result has the CPU's bits (NaN payloads apart).

/// One launch.
template <typename T>
void exit_factors(const math::DepthShape& s, const T* x, T* factors);

/// One launch.
template <typename T>
void stochastic_depth_forward(const math::DepthShape& s, const T* x, const T* weight,
                              const T* factors, T* y);

/// A launch for each gradient. A sum over rows is one thread's: for layers of few rows.
template <typename T>
void stochastic_depth_backward(const math::DepthShape& s, const T* gy, const T* x, const T* weight,
                               const T* factors, T* gx, T* gweight);

}  // namespace rematch::cuda
