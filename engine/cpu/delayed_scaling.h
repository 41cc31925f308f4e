#pragma once

#include <cstdint>

namespace rematch::cpu {

/// y = x / *scale, of n elements.
template <typename T>
void divide_by(std::int64_t n, const T* x, const T* scale, T* y);

/// *average becomes the mean of itself and of the largest |x|, NaN left out; 0 for none.
template <typename T>
void average_magnitude(std::int64_t n, const T* x, T* average);

/// y = x rounded to float8 e4m3 in units of math::float8_scale(history), of n elements.
template <typename T>
void round_to_float8(std::int64_t n, const T* x, const T* history, T* y);

/// The largest |x| becomes the last of the history, and the first is forgotten; NaN left out.
template <typename T>
void remember_magnitude(std::int64_t n, const T* x, T* history);

}  // namespace rematch::cpu
