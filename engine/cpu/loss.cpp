#include "engine/kernels/loss.h"

#include "engine/cpu/reduce.h"
#include "engine/cpu/row_max.h"
#include "engine/math/elementary.h"
#include "engine/math/pointwise.h"

namespace rematch::cpu {

template <typename T>
void mse_forward(std::int64_t n, const T* x, const T* target, T* out) {
  const double total =
      lane_sum<T>(n, [=](std::int64_t i) { return math::squared_difference(x[i], target[i]); });
  *out = static_cast<T>(total / static_cast<double>(n));
}

template <typename T>
void mse_backward(std::int64_t n, const T* g, const T* x, const T* target, T* gx) {
  const T factor = math::mse_factor(*g, n);
  for (std::int64_t i = 0; i < n; ++i) gx[i] = math::mse_gradient(factor, x[i], target[i]);
}

template <typename T>
void cross_entropy_forward(std::int64_t rows, std::int64_t cols, const T* x,
                           const std::int32_t* target, T* log_probs, T* out) {
  math::GroupedSum<double> total;
  for (std::int64_t r = 0; r < rows; ++r, x += cols, log_probs += cols) {
    const T top = row_max(cols, x);
    for (std::int64_t i = 0; i < cols; ++i) log_probs[i] = math::exp(x[i] - top);
    const double sum = lane_sum<T>(cols, [=](std::int64_t i) { return log_probs[i]; });
    const T log_sum = static_cast<T>(math::log(sum));
    for (std::int64_t i = 0; i < cols; ++i) log_probs[i] = (x[i] - top) - log_sum;
    total.add(-static_cast<double>(log_probs[target[r]]));
  }
  *out = static_cast<T>(total.total() / static_cast<double>(rows));
}

template <typename T>
void cross_entropy_backward(std::int64_t rows, std::int64_t cols, const T* g, const T* log_probs,
                            const std::int32_t* target, T* gx) {
  const T factor = math::cross_entropy_factor(*g, rows);
  for (std::int64_t r = 0; r < rows; ++r, log_probs += cols, gx += cols) {
    for (std::int64_t i = 0; i < cols; ++i)
      gx[i] = math::cross_entropy_gradient(factor, log_probs[i], false);
    gx[target[r]] = math::cross_entropy_gradient(factor, log_probs[target[r]], true);
  }
}

REMATCH_LOSS_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
