#include "engine/kernels/activation.h"

#include "engine/cuda/kernels/reduce.h"
#include "engine/math/pointwise.h"

namespace rematch::cuda {

namespace {

/// y = kFunction(x), element by element.
template <typename T, T (*kFunction)(T)>
struct Forward {
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const { y = kFunction(x); }
};
/// gx = kFunction(gy, what the forward saved).
template <typename T, T (*kFunction)(T, T)>
struct Gradient {
  __device__ void operator()(std::int64_t /*i*/, T gy, T saved, T& gx) const {
    gx = kFunction(gy, saved);
  }
};
template <typename T>
struct LeakyRelu {
  T slope;
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::leaky_relu(x, slope);
  }
};
template <typename T>
struct LeakyReluGradient {
  T slope;
  __device__ void operator()(std::int64_t /*i*/, T gy, T x, T& gx) const {
    gx = math::leaky_relu_gradient(gy, x, slope);
  }
};

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    softmax_kernel(std::int64_t rows, std::int64_t cols, const T* all_x, T* all_y) {
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* __restrict__ x = all_x + r * cols;
    T* __restrict__ y = all_y + r * cols;
    const T top = Row::max(cols, x);
    const T total = static_cast<T>(Row::template sum<T>(cols, [=](std::int64_t i) {
      const T e = math::exp(x[i] - top);
      y[i] = e;
      return e;
    }));
    Row::each(cols, [=](std::int64_t i) { y[i] /= total; });
  });
}

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    softmax_gradient_kernel(std::int64_t rows, std::int64_t cols, const T* all_gy, const T* all_y,
                            T* all_gx) {
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* gy = all_gy + r * cols;
    const T* y = all_y + r * cols;
    T* gx = all_gx + r * cols;
    const T dot =
        static_cast<T>(Row::template sum<T>(cols, [=](std::int64_t i) { return gy[i] * y[i]; }));
    Row::each(cols, [=](std::int64_t i) { gx[i] = math::softmax_gradient(gy[i], y[i], dot); });
  });
}

}  // namespace

#define REMATCH_DEFINE(f)                                                              \
  template <typename T>                                                                \
  void f##_forward(std::int64_t n, const T* x, T* y) {                                 \
    visit<kVector<T>>(#f "_forward", n, Forward<T, math::f>{}, In<T>{x}, Out<T>{y});   \
  }                                                                                    \
  template <typename T>                                                                \
  void f##_backward(std::int64_t n, const T* gy, const T* saved, T* gx) {              \
    visit<kVector<T>>(#f "_backward", n, Gradient<T, math::f##_gradient>{}, In<T>{gy}, \
                      In<T>{saved}, Out<T>{gx});                                       \
  }
REMATCH_POINTWISE_ACTIVATIONS(REMATCH_DEFINE)

template <typename T>
void leaky_relu_forward(std::int64_t n, const T* x, T slope, T* y) {
  visit<kVector<T>>("leaky_relu_forward", n, LeakyRelu<T>{slope}, In<T>{x}, Out<T>{y});
}

template <typename T>
void leaky_relu_backward(std::int64_t n, const T* gy, const T* x, T slope, T* gx) {
  visit<kVector<T>>("leaky_relu_backward", n, LeakyReluGradient<T>{slope}, In<T>{gy}, In<T>{x},
                    Out<T>{gx});
}

template <typename T>
void softmax_forward(std::int64_t rows, std::int64_t cols, const T* x, T* y) {
  if (rows <= 0 || cols <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    softmax_kernel<decltype(row)><<<blocks, threads, 0, stream()>>>(rows, cols, x, y);
  });
  check_launch("softmax_forward");
}

template <typename T>
void softmax_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* y, T* gx) {
  if (rows <= 0 || cols <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    softmax_gradient_kernel<decltype(row)><<<blocks, threads, 0, stream()>>>(rows, cols, gy, y, gx);
  });
  check_launch("softmax_backward");
}

REMATCH_ACTIVATION_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
