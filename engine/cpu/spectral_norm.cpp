#include "engine/kernels/spectral_norm.h"

#include <algorithm>

#include "engine/cpu/reduce.h"
#include "engine/cpu/threads.h"
#include "engine/math/spectral_norm.h"

namespace rematch::cpu {

template <typename T>
void column_products(std::int64_t rows, std::int64_t cols, const T* w, const T* u, T* v) {
  column_sums<T>(
      rows, cols, [=](std::int64_t i, std::int64_t j) { return w[i * cols + j] * u[i]; },
      [=](std::int64_t j, double total) { v[j] = static_cast<T>(total); });
}

template <typename T>
void row_products(std::int64_t rows, std::int64_t cols, const T* w, const T* v, T* s) {
  parallel(rows, kGrain / std::max<std::int64_t>(cols, 1) + 1, 1,
           [=](std::int64_t begin, std::int64_t end) {
             for (std::int64_t r = begin; r < end; ++r) {
               const T* row = w + r * cols;
               s[r] =
                   static_cast<T>(lane_sum<T>(cols, [=](std::int64_t i) { return row[i] * v[i]; }));
             }
           });
}

template <typename T>
void normalise_vector(std::int64_t n, T eps, T* x, T* product) {
  const T length =
      math::length_of(lane_sum<T>(n, [=](std::int64_t i) { return x[i] * x[i]; }), eps);
  if (product != nullptr) {
    *product = static_cast<T>(lane_sum<T>(n, [=](std::int64_t i) { return x[i] / length * x[i]; }));
  }
  for (std::int64_t i = 0; i < n; ++i) x[i] /= length;
}

template <typename T>
void inner_product(std::int64_t n, const T* a, const T* b, T* product) {
  *product = static_cast<T>(lane_sum<T>(n, [=](std::int64_t i) { return a[i] * b[i]; }));
}

template <typename T>
void spectral_norm_backward(std::int64_t rows, std::int64_t cols, const T* normalised, const T* u,
                            const T* v, const T* sigma, T* g) {
  T product{};
  inner_product(rows * cols, g, normalised, &product);
  const T divisor = *sigma;
  parallel(rows, kGrain / std::max<std::int64_t>(cols, 1) + 1, 1,
           [=](std::int64_t begin, std::int64_t end) {
             for (std::int64_t r = begin; r < end; ++r) {
               T* row = g + r * cols;
               for (std::int64_t c = 0; c < cols; ++c) {
                 row[c] = math::spectral_gradient(row[c], product, u[r], v[c], divisor);
               }
             }
           });
}

REMATCH_SPECTRAL_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
