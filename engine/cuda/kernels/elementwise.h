#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/elementwise.h on the device, with its contracts: pointers are the device's, work goes
// to stream(), and every result has the CPU's bits (NaN payloads apart). Outputs may be one of the
// inputs, but must not overlap them otherwise.

template <typename T>
void add(std::int64_t n, const T* a, const T* b, T* out);

template <typename T>
void add_inplace(std::int64_t n, const T* x, T* y);

template <typename T>
void sub(std::int64_t n, const T* a, const T* b, T* out);

template <typename T>
void scale(std::int64_t n, const T* a, T s, T* out);

template <typename T>
void scale_inplace(std::int64_t n, T s, T* x);

template <typename T>
void axpy_inplace(std::int64_t n, T s, const T* x, T* y);

template <typename T>
void fill(std::int64_t n, T value, T* out);

/// out = *value everywhere; `value` lies on the device, so that nothing waits for it.
template <typename T>
void fill_from(std::int64_t n, const T* value, T* out);

template <typename T>
void square(std::int64_t n, const T* x, T* out);

/// *out = the sum of x in the order of LaneSum (engine/cpu/reduce.h) for every n, so the CPU's
/// bits. Within ((64 + 4) u_T + ceil(n / 1024) u_64) * sum |x| of the exact sum, where u_T and u_64
/// are the unit roundoffs (engine/math/lane_order.h derives it). `out` is one element on the
/// device. The blocks' sums, one in 1024 elements, are added by one warp: the price of that order
/// is some microseconds a million elements.
template <typename T>
void sum(std::int64_t n, const T* x, T* out);

/// *out = the sum of x * x in the same order: the CPU's bits, and one u_T more of error.
template <typename T>
void sum_squares(std::int64_t n, const T* x, T* out);

}  // namespace rematch::cuda
