#pragma once

#include <cstdint>

namespace rematch::cpu {

/// y = x / *scale, of n elements.
template <typename T>
void divide_by(std::int64_t n, const T* x, const T* scale, T* y);

/// *average becomes the mean of itself and of the largest |x|, NaN left out; 0 for none.
template <typename T>
void average_magnitude(std::int64_t n, const T* x, T* average);

}  // namespace rematch::cpu
