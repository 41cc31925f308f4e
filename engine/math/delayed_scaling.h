#pragma once

// Delayed scaling, element by element, for every backend: one source, so the same bits.

#include <cmath>

#include "engine/math/host_device.h"

namespace rematch::math {

/// The larger of `top` and |x|; `top` if x is NaN.
template <typename T>
REMATCH_HD inline T larger_magnitude(T top, T x) {
  const T magnitude = std::fabs(x);
  return magnitude > top ? magnitude : top;
}

/// The mean of an average and of what came last. No sum of the two overflows.
template <typename T>
REMATCH_HD inline T moved_average(T average, T latest) {
  return average * T(0.5) + latest * T(0.5);
}

}  // namespace rematch::math
