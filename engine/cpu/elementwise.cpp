#include "engine/cpu/elementwise.h"

#include <algorithm>
#include <cmath>

#include "engine/cpu/reduce.h"
#include "engine/cpu/threads.h"
#include "engine/math/bfloat16.h"

namespace rematch::cpu {

template <typename T>
void add(std::int64_t n, const T* a, const T* b, T* out) {
  parallel_elements(n, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

template <typename T>
void add_inplace(std::int64_t n, const T* x, T* y) {
  parallel_elements(n, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] += x[i];
  });
}

template <typename T>
void sub(std::int64_t n, const T* a, const T* b, T* out) {
  parallel_elements(n, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] - b[i];
  });
}

template <typename T>
void scale(std::int64_t n, const T* a, T s, T* out) {
  parallel_elements(n, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] * s;
  });
}

template <typename T>
void scale_inplace(std::int64_t n, T s, T* x) {
  parallel_elements(n, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) x[i] *= s;
  });
}

template <typename T>
void axpy_inplace(std::int64_t n, T s, const T* x, T* y) {
  parallel_elements(n, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = std::fma(s, x[i], y[i]);
  });
}

template <typename T>
void fill(std::int64_t n, T value, T* out) {
  std::fill_n(out, n, value);
}

template <typename T>
void fill_from(std::int64_t n, const T* value, T* out) {
  const T v = *value;
  parallel_elements(
      n, [=](std::int64_t begin, std::int64_t end) { std::fill(out + begin, out + end, v); });
}

template <typename T>
void square(std::int64_t n, const T* x, T* out) {
  parallel_elements(n, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = x[i] * x[i];
  });
}

template <typename T>
T sum(std::int64_t n, const T* x) {
  return static_cast<T>(lane_sum<T>(n, [=](std::int64_t i) { return x[i]; }));
}

template <typename T>
T sum_squares(std::int64_t n, const T* x) {
  return static_cast<T>(lane_sum<T>(n, [=](std::int64_t i) { return x[i] * x[i]; }));
}

#define REMATCH_INSTANTIATE(T)                               \
  template void add(std::int64_t, const T*, const T*, T*);   \
  template void add_inplace(std::int64_t, const T*, T*);     \
  template void sub(std::int64_t, const T*, const T*, T*);   \
  template void scale(std::int64_t, const T*, T, T*);        \
  template void scale_inplace(std::int64_t, T, T*);          \
  template void axpy_inplace(std::int64_t, T, const T*, T*); \
  template void fill(std::int64_t, T, T*);                   \
  template void fill_from(std::int64_t, const T*, T*);       \
  template void square(std::int64_t, const T*, T*);          \
  template T sum(std::int64_t, const T*);                    \
  template T sum_squares(std::int64_t, const T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

using math::BFloat16;
template void add(std::int64_t, const BFloat16*, const BFloat16*, BFloat16*);
template void add_inplace(std::int64_t, const BFloat16*, BFloat16*);
template void fill(std::int64_t, BFloat16, BFloat16*);

}  // namespace rematch::cpu
