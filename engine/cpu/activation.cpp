#include "engine/cpu/activation.h"

#include <cmath>

#include "engine/cpu/reduce.h"
#include "engine/cpu/row_max.h"
#include "engine/math/elementary.h"

namespace rematch::cpu {

template <typename T>
void relu_forward(std::int64_t n, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] <= T(0) ? T(0) : x[i];
}

template <typename T>
void relu_backward(std::int64_t n, const T* gy, const T* y, T* gx) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = gy[i];
    gx[i] = y[i] > T(0) ? g : T(0);
  }
}

template <typename T>
void leaky_relu_forward(std::int64_t n, const T* x, T slope, T* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T scaled = slope * x[i];
    y[i] = x[i] > T(0) ? x[i] : scaled;
  }
}

template <typename T>
void leaky_relu_backward(std::int64_t n, const T* gy, const T* x, T slope, T* gx) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = gy[i];
    const T scaled = slope * g;
    gx[i] = x[i] > T(0) ? g : scaled;
  }
}

template <typename T>
void gelu_forward(std::int64_t n, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = math::gelu(x[i]);
}

template <typename T>
void gelu_backward(std::int64_t n, const T* gy, const T* x, T* gx) {
  for (std::int64_t i = 0; i < n; ++i) gx[i] = gy[i] * math::gelu_derivative(x[i]);
}

template <typename T>
void tanh_forward(std::int64_t n, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = math::tanh(x[i]);
}

template <typename T>
void tanh_backward(std::int64_t n, const T* gy, const T* y, T* gx) {
  for (std::int64_t i = 0; i < n; ++i) gx[i] = gy[i] * std::fma(-y[i], y[i], T(1));
}

template <typename T>
void sigmoid_forward(std::int64_t n, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = math::sigmoid(x[i]);
}

template <typename T>
void sigmoid_backward(std::int64_t n, const T* gy, const T* y, T* gx) {
  for (std::int64_t i = 0; i < n; ++i) gx[i] = gy[i] * (y[i] * (T(1) - y[i]));
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
    for (std::int64_t i = 0; i < cols; ++i) gx[i] = y[i] * (gy[i] - dot);
  }
}

#define REMATCH_INSTANTIATE(T)                                                \
  template void relu_forward(std::int64_t, const T*, T*);                     \
  template void relu_backward(std::int64_t, const T*, const T*, T*);          \
  template void leaky_relu_forward(std::int64_t, const T*, T, T*);            \
  template void leaky_relu_backward(std::int64_t, const T*, const T*, T, T*); \
  template void gelu_forward(std::int64_t, const T*, T*);                     \
  template void gelu_backward(std::int64_t, const T*, const T*, T*);          \
  template void tanh_forward(std::int64_t, const T*, T*);                     \
  template void tanh_backward(std::int64_t, const T*, const T*, T*);          \
  template void sigmoid_forward(std::int64_t, const T*, T*);                  \
  template void sigmoid_backward(std::int64_t, const T*, const T*, T*);       \
  template void softmax_forward(std::int64_t, std::int64_t, const T*, T*);    \
  template void softmax_backward(std::int64_t, std::int64_t, const T*, const T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
