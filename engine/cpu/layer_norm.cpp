#include "engine/cpu/layer_norm.h"

#include "engine/cpu/reduce.h"
#include "engine/math/normalise.h"
#include "engine/math/pointwise.h"

namespace rematch::cpu {

template <typename T>
void layer_norm_forward(std::int64_t rows, std::int64_t cols, const T* x, const T* w, const T* b,
                        T eps, T* y, T* mean, T* rstd) {
  const auto count = static_cast<double>(cols);
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const T centre =
        static_cast<T>(lane_sum<T>(cols, [=](std::int64_t i) { return x[i]; }) / count);
    const double variance =
        lane_sum<T>(cols, [=](std::int64_t i) { return math::squared_difference(x[i], centre); }) /
        count;
    const T factor = math::inverse_deviation(variance, eps);
    mean[r] = centre;
    rstd[r] = factor;
    for (std::int64_t i = 0; i < cols; ++i) y[i] = math::layer_norm(x[i], centre, factor, w, b, i);
  }
}

template <typename T>
void layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* x,
                         const T* mean, const T* rstd, const T* w, T* gx, T* gw, T* gb) {
  const auto count = static_cast<double>(cols);
  if (gw != nullptr) {
    column_sums<T>(
        rows, cols,
        [=](std::int64_t r, std::int64_t i) {
          const std::int64_t at = r * cols + i;
          return math::layer_norm_weight_term(gy[at], x[at], mean[r], rstd[r]);
        },
        [=](std::int64_t i, double total) { gw[i] = static_cast<T>(total); });
  }
  if (gb != nullptr) {
    column_sums<T>(
        rows, cols, [=](std::int64_t r, std::int64_t i) { return gy[r * cols + i]; },
        [=](std::int64_t i, double total) { gb[i] = static_cast<T>(total); });
  }
  if (gx == nullptr) return;
  for (std::int64_t r = 0; r < rows; ++r, gy += cols, x += cols, gx += cols) {
    const T centre = mean[r];
    const T factor = rstd[r];
    const auto h = [=](std::int64_t i) { return w == nullptr ? gy[i] : gy[i] * w[i]; };
    const double sum_h = lane_sum<T>(cols, h);
    const double moment = lane_sum<T>(cols, [=](std::int64_t i) { return h(i) * (x[i] - centre); });
    const auto row = math::LayerNormRow<T>::make(centre, factor, sum_h, moment, count);
    for (std::int64_t i = 0; i < cols; ++i) gx[i] = row.gradient(h(i), x[i]);
  }
}

#define REMATCH_INSTANTIATE(T)                                                                  \
  template void layer_norm_forward(std::int64_t, std::int64_t, const T*, const T*, const T*, T, \
                                   T*, T*, T*);                                                 \
  template void layer_norm_backward(std::int64_t, std::int64_t, const T*, const T*, const T*,   \
                                    const T*, const T*, T*, T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
