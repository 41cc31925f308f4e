#pragma once

#include <cstdint>

namespace rematch::cpu {

// Outputs may be one of the inputs, but must not overlap them otherwise.

/// out = a + b. This, add_inplace and fill are there for bfloat16 as well.
template <typename T>
void add(std::int64_t n, const T* a, const T* b, T* out);

/// y += x.
template <typename T>
void add_inplace(std::int64_t n, const T* x, T* y);

/// out = a - b.
template <typename T>
void sub(std::int64_t n, const T* a, const T* b, T* out);

/// out = a * s.
template <typename T>
void scale(std::int64_t n, const T* a, T s, T* out);

/// x *= s.
template <typename T>
void scale_inplace(std::int64_t n, T s, T* x);

/// y = fma(s, x, y).
template <typename T>
void axpy_inplace(std::int64_t n, T s, const T* x, T* y);

/// out = value everywhere.
template <typename T>
void fill(std::int64_t n, T value, T* out);

/// out = *value everywhere.
template <typename T>
void fill_from(std::int64_t n, const T* value, T* out);

/// out = x * x.
template <typename T>
void square(std::int64_t n, const T* x, T* out);

/// The sum of x in the order of LaneSum (engine/cpu/reduce.h): 16 lanes within blocks of 1024,
/// lanes added as a tree, block sums added in ascending order in double.
template <typename T>
T sum(std::int64_t n, const T* x);

/// The sum of x * x in the same order.
template <typename T>
T sum_squares(std::int64_t n, const T* x);

}  // namespace rematch::cpu
