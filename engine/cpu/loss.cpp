#include "engine/cpu/loss.h"

#include "engine/cpu/reduce.h"
#include "engine/cpu/row_max.h"
#include "engine/math/elementary.h"

namespace rematch::cpu {

template <typename T>
T mse_forward(std::int64_t n, const T* x, const T* target) {
  const double total = lane_sum<T>(n, [=](std::int64_t i) {
    const T d = x[i] - target[i];
    return d * d;
  });
  return static_cast<T>(total / static_cast<double>(n));
}

template <typename T>
void mse_backward(std::int64_t n, T g, const T* x, const T* target, T* gx) {
  const T factor = g * (T(2) / static_cast<T>(n));
  for (std::int64_t i = 0; i < n; ++i) gx[i] = factor * (x[i] - target[i]);
}

template <typename T>
T cross_entropy_forward(std::int64_t rows, std::int64_t cols, const T* x,
                        const std::int32_t* target, T* log_probs) {
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r, x += cols, log_probs += cols) {
    const T top = row_max(cols, x);
    for (std::int64_t i = 0; i < cols; ++i) log_probs[i] = math::exp(x[i] - top);
    const double sum = lane_sum<T>(cols, [=](std::int64_t i) { return log_probs[i]; });
    const T log_sum = static_cast<T>(math::log(sum));
    for (std::int64_t i = 0; i < cols; ++i) log_probs[i] = (x[i] - top) - log_sum;
    total -= static_cast<double>(log_probs[target[r]]);
  }
  return static_cast<T>(total / static_cast<double>(rows));
}

template <typename T>
void cross_entropy_backward(std::int64_t rows, std::int64_t cols, T g, const T* log_probs,
                            const std::int32_t* target, T* gx) {
  const T factor = g / static_cast<T>(rows);
  for (std::int64_t r = 0; r < rows; ++r, log_probs += cols, gx += cols) {
    for (std::int64_t i = 0; i < cols; ++i) gx[i] = factor * math::exp(log_probs[i]);
    gx[target[r]] = factor * (math::exp(log_probs[target[r]]) - T(1));
  }
}

#define REMATCH_INSTANTIATE(T)                                                                     \
  template T mse_forward(std::int64_t, const T*, const T*);                                        \
  template void mse_backward(std::int64_t, T, const T*, const T*, T*);                             \
  template T cross_entropy_forward(std::int64_t, std::int64_t, const T*, const std::int32_t*, T*); \
  template void cross_entropy_backward(std::int64_t, std::int64_t, T, const T*,                    \
                                       const std::int32_t*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
