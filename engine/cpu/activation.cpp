#include "engine/kernels/activation.h"

#include "engine/cpu/reduce.h"
#include "engine/cpu/row_max.h"
#include "engine/cpu/threads.h"
#include "engine/math/elementary.h"
#include "engine/math/pointwise.h"

namespace rematch::cpu {

#define REMATCH_DEFINE(f)                                                                       \
  template <typename T>                                                                         \
  void f##_forward(std::int64_t n, const T* x, T* y) {                                          \
    parallel_elements(n, [=](std::int64_t i) { y[i] = math::f(x[i]); });                        \
  }                                                                                             \
  template <typename T>                                                                         \
  void f##_backward(std::int64_t n, const T* gy, const T* saved, T* gx) {                       \
    parallel_elements(n, [=](std::int64_t i) { gx[i] = math::f##_gradient(gy[i], saved[i]); }); \
  }
REMATCH_POINTWISE_ACTIVATIONS(REMATCH_DEFINE)

template <typename T>
void leaky_relu_forward(std::int64_t n, const T* x, T slope, T* y) {
  parallel_elements(n, [=](std::int64_t i) { y[i] = math::leaky_relu(x[i], slope); });
}

template <typename T>
void leaky_relu_backward(std::int64_t n, const T* gy, const T* x, T slope, T* gx) {
  parallel_elements(n,
                    [=](std::int64_t i) { gx[i] = math::leaky_relu_gradient(gy[i], x[i], slope); });
}

template <typename T>
void softmax_forward(std::int64_t rows, std::int64_t cols, const T* x, T* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const T top = row_max(cols, x);
    for (std::int64_t i = 0; i < cols; ++i) y[i] = math::exp(x[i] - top);
    const T total = static_cast<T>(lane_sum<T>(cols, [=](std::int64_t i) { return y[i]; }));
    for (std::int64_t i = 0; i < cols; ++i) y[i] /= total;
  }
}

template <typename T>
void softmax_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* y, T* gx) {
  for (std::int64_t r = 0; r < rows; ++r, gy += cols, y += cols, gx += cols) {
    const T dot = static_cast<T>(lane_sum<T>(cols, [=](std::int64_t i) { return gy[i] * y[i]; }));
    for (std::int64_t i = 0; i < cols; ++i) gx[i] = math::softmax_gradient(gy[i], y[i], dot);
  }
}

REMATCH_ACTIVATION_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
