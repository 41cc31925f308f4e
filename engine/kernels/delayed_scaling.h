#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// Each is one launch on the device; those that look for the largest |x|, of one block.

/// y = x / *scale, of n elements.
REMATCH_DECLARE(void divide_by(std::int64_t n, const T* x, const T* scale, T* y));

/// *average becomes the mean of itself and of the largest |x|, NaN left out; 0 for none.
REMATCH_DECLARE(void average_magnitude(std::int64_t n, const T* x, T* average));

/// y = x rounded to float8 e4m3 in units of math::float8_scale(history), of n elements.
REMATCH_DECLARE(void round_to_float8(std::int64_t n, const T* x, const T* history, T* y));

/// The largest |x| becomes the last of the history, and the first is forgotten; NaN left out.
REMATCH_DECLARE(void remember_magnitude(std::int64_t n, const T* x, T* history));

#define REMATCH_DELAYED_SCALING_KERNELS(K) \
  K(divide_by);                            \
  K(average_magnitude);                    \
  K(round_to_float8);                      \
  K(remember_magnitude)

}  // namespace rematch
