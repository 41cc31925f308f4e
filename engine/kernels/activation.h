#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// On the device row sums (softmax) are within ((64 + 4) u_T + ceil(cols / 1024) u_64) * sum |terms|
// of the exact ones (engine/math/lane_order.h).

// Activations f that take each element by itself: y = f(x), and gx = gy * f'(x) from what the
// forward saved.
//   relu: y = max(x, 0); NaN stays NaN and -0 becomes +0. Output may be the input. gx = gy where
//     y > 0, else +0; from the output y.
//   gelu: y = x * Phi(x), the exact (erf) form of Hendrycks and Gimpel, 2016.
//     gx = gy * (Phi(x) + x * phi(x)); from the input x.
//   silu: y = x / (1 + exp(-x)). gx = gy * s * (1 + x * (1 - s)) with s = 1 / (1 + exp(-x)); from
//     the input x.
//   tanh: gx = gy * (1 - y * y); from the output y.
//   sigmoid: y = 1 / (1 + exp(-x)). gx = gy * y * (1 - y); from the output y.
#define REMATCH_POINTWISE_ACTIVATIONS(A) A(relu) A(gelu) A(silu) A(tanh) A(sigmoid)
#define REMATCH_DECLARE_ACTIVATION(f)                                  \
  REMATCH_DECLARE(void f##_forward(std::int64_t n, const T* x, T* y)); \
  REMATCH_DECLARE(void f##_backward(std::int64_t n, const T* gy, const T* saved, T* gx));
REMATCH_POINTWISE_ACTIVATIONS(REMATCH_DECLARE_ACTIVATION)

/// y = x where x > 0, else slope * x.
REMATCH_DECLARE(void leaky_relu_forward(std::int64_t n, const T* x, T slope, T* y));

/// gx = gy where x > 0, else slope * gy; from the input x.
REMATCH_DECLARE(void leaky_relu_backward(std::int64_t n, const T* gy, const T* x, T slope, T* gx));

/// y = exp(x - max) / sum(exp(x - max)) in each row of x[rows,cols]; y is neither x nor part of it.
/// On the device, with d = max - x, y is within (77 + d + ln(cols)) u_T + ceil(cols / 1024) u_64 of
/// the exact one, relatively, where it is no subnormal: each exp is off by 4 u_T for its 2 ulp and
/// d u_T for the rounded difference, whose mean over the row's weights is at most ln(cols); the sum
/// adds 68 u_T, the quotient 1.
REMATCH_DECLARE(void softmax_forward(std::int64_t rows, std::int64_t cols, const T* x, T* y));

/// gx = y * (gy - sum(gy * y)) in each row; from the output y. On the device within
/// (71 u_T + ceil(cols / 1024) u_64) * |y| * (|gy| + sum |gy * y|) of the exact gx.
REMATCH_DECLARE(void softmax_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* y,
                                      T* gx));

#define REMATCH_ACTIVATION_KERNELS(K) \
  K(relu_forward);                    \
  K(relu_backward);                   \
  K(leaky_relu_forward);              \
  K(leaky_relu_backward);             \
  K(gelu_forward);                    \
  K(gelu_backward);                   \
  K(silu_forward);                    \
  K(silu_backward);                   \
  K(tanh_forward);                    \
  K(tanh_backward);                   \
  K(sigmoid_forward);                 \
  K(sigmoid_backward);                \
  K(softmax_forward);                 \
  K(softmax_backward)

}  // namespace rematch
