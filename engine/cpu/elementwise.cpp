#include "engine/kernels/elementwise.h"

#include <algorithm>

#include "engine/cpu/reduce.h"
#include "engine/cpu/threads.h"
#include "engine/math/bfloat16.h"

namespace rematch::cpu {

template <typename T>
void add(std::int64_t n, const T* a, const T* b, T* out) {
  parallel_elements(n, [=](std::int64_t i) { out[i] = a[i] + b[i]; });
}

template <typename T>
void add_inplace(std::int64_t n, const T* x, T* y) {
  parallel_elements(n, [=](std::int64_t i) { y[i] += x[i]; });
}

template <typename T>
void scale(std::int64_t n, const T* a, T s, T* out) {
  parallel_elements(n, [=](std::int64_t i) { out[i] = a[i] * s; });
}

template <typename T>
void scale_inplace(std::int64_t n, T s, T* x) {
  parallel_elements(n, [=](std::int64_t i) { x[i] *= s; });
}

template <typename T>
void fill(std::int64_t n, T value, T* out) {
  std::fill_n(out, n, value);
}

template <typename T>
void fill_from(std::int64_t n, const T* value, T* out) {
  const T v = *value;
  parallel_elements(n, [=](std::int64_t i) { out[i] = v; });
}

template <typename T>
void sum(std::int64_t n, const T* x, T* out) {
  *out = static_cast<T>(lane_sum<T>(n, [=](std::int64_t i) { return x[i]; }));
}

REMATCH_ELEMENTWISE_KERNELS(REMATCH_INSTANTIATE);
REMATCH_ELEMENTWISE_BFLOAT16_KERNELS(REMATCH_INSTANTIATE_BFLOAT16);

}  // namespace rematch::cpu
