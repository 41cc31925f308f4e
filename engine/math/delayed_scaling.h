#pragma once

// Delayed scaling, element by element, for every backend: one source, so the same bits.

#include <cmath>

#include "engine/math/float8.h"
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

/// Forwards whose largest magnitudes decide about a scale of float8.
inline constexpr int kFloat8History = 4;

/// The scale by which the largest of a history of magnitudes becomes the largest float8; 1 if there
/// was nothing but zeros.
template <typename T>
REMATCH_HD inline T float8_scale(const T* history) {
  T top = 0;
  for (int i = 0; i < kFloat8History; ++i) top = larger_magnitude(top, history[i]);
  return top > 0 ? top / T(kLargestFloat8) : T(1);
}

/// x rounded to float8 in units of that scale.
template <typename T>
REMATCH_HD inline T through_float8(T x, T scale) {
  return rounded_to_float8(x / scale) * scale;
}

/// Forgets the oldest of a history, which comes first.
template <typename T>
REMATCH_HD inline void remember(T* history, T latest) {
  for (int i = 0; i + 1 < kFloat8History; ++i) history[i] = history[i + 1];
  history[kFloat8History - 1] = latest;
}

}  // namespace rematch::math
