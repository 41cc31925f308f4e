#include "engine/kernels/layer_norm.h"

#include "engine/cpu/row_norm.h"

namespace rematch::cpu {

template <typename T>
void layer_norm_forward(std::int64_t rows, std::int64_t cols, const T* x, const T* w, const T* b,
                        T eps, T* y, T* mean, T* rstd) {
  normalise_rows(rows, {.channels = cols}, x, w, b, eps, y, mean, rstd);
}

template <typename T>
void layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* x,
                         const T* mean, const T* rstd, const T* w, T* gx, T* gw, T* gb) {
  if (gw != nullptr) {
    column_sums<T>(
        rows, cols,
        [=](std::int64_t r, std::int64_t i) {
          const std::int64_t at = r * cols + i;
          return math::layer_norm_weight_term(gy[at], x[at], math::row_mean(mean, r), rstd[r]);
        },
        [=](std::int64_t i, double total) { gw[i] = static_cast<T>(total); });
  }
  if (gb != nullptr) {
    column_sums<T>(
        rows, cols, [=](std::int64_t r, std::int64_t i) { return gy[r * cols + i]; },
        [=](std::int64_t i, double total) { gb[i] = static_cast<T>(total); });
  }
  if (gx != nullptr) {
    normalise_rows_backward(rows, {.channels = cols}, gy, x, mean, rstd, w, gx);
  }
}

REMATCH_LAYER_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
