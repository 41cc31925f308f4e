#pragma once

// Spectral normalisation around its sums, for every backend: one source, so the same bits.

#include <cmath>

#include "engine/math/host_device.h"

namespace rematch::math {

/// The divisor that gives a vector with this sum of squares the length 1, or less
/// if it is below `eps`.
template <typename T>
REMATCH_HD inline T length_of(double squares, T eps) {
  const T length = static_cast<T>(std::sqrt(squares));
  return length < eps ? eps : length;
}

/// The gradient of an element of the weight, from that of the element of weight / sigma and from
/// the inner product of all those with weight / sigma.
template <typename T>
REMATCH_HD inline T spectral_gradient(T g, T product, T u, T v, T sigma) {
  return (g - product * (u * v)) / sigma;
}

}  // namespace rematch::math
