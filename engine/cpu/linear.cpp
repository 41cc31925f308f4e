#include "engine/kernels/linear.h"

#include <algorithm>

#include "engine/cpu/product.h"
#include "engine/cpu/reduce.h"

namespace rematch::cpu {

namespace {

/// Fewer rows of x than this would leave most lanes of a vector idle.
constexpr std::int64_t kFewRows = 8;

}  // namespace

template <typename T>
void linear_forward(const T* x, const T* w, const T* b, T* y, std::int64_t n, std::int64_t k,
                    std::int64_t m) {
  if (n >= kFewRows) {
    product_transposed<T>(m, n, k, {w, k, 1}, {x, 1, k}, b, y, m);
    return;
  }
  for (std::int64_t i = 0; b != nullptr && i < n; ++i) std::copy_n(b, m, y + i * m);
  product<T>(n, m, k, {x, k, 1}, {w, 1, k}, b != nullptr, y, m);
}

template <typename T>
void linear_grad_input(const T* gy, const T* w, T* gx, std::int64_t n, std::int64_t k,
                       std::int64_t m) {
  product<T>(n, k, m, {gy, m, 1}, {w, k, 1}, false, gx, k);
}

template <typename T>
void linear_grad_weight(const T* gy, const T* x, T* gw, std::int64_t n, std::int64_t k,
                        std::int64_t m) {
  product<T>(m, k, n, {gy, 1, m}, {x, k, 1}, false, gw, k);
}

template <typename T>
void sum_rows(const T* gy, T* gb, std::int64_t n, std::int64_t m) {
  column_sums<T>(
      n, m, [=](std::int64_t i, std::int64_t j) { return gy[i * m + j]; },
      [=](std::int64_t j, double total) { gb[j] = static_cast<T>(total); });
}

REMATCH_LINEAR_KERNELS(REMATCH_INSTANTIATE);
REMATCH_INSTANTIATE(sum_rows);

}  // namespace rematch::cpu
