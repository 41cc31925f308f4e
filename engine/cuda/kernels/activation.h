#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/activation.h on the device, with its contracts: pointers are the device's, work goes
// to stream(). Element formulas and the order of row sums are the CPU's, so the bits are, NaN
// payloads apart. Row sums (softmax) are within ((64 + 4) u_T + ceil(cols / 1024) u_64) * sum
// |terms| of the exact ones (engine/math/lane_order.h).

template <typename T>
void relu_forward(std::int64_t n, const T* x, T* y);

template <typename T>
void relu_backward(std::int64_t n, const T* gy, const T* y, T* gx);

template <typename T>
void leaky_relu_forward(std::int64_t n, const T* x, T slope, T* y);

template <typename T>
void leaky_relu_backward(std::int64_t n, const T* gy, const T* x, T slope, T* gx);

template <typename T>
void gelu_forward(std::int64_t n, const T* x, T* y);

template <typename T>
void gelu_backward(std::int64_t n, const T* gy, const T* x, T* gx);

template <typename T>
void silu_forward(std::int64_t n, const T* x, T* y);

template <typename T>
void silu_backward(std::int64_t n, const T* gy, const T* x, T* gx);

template <typename T>
void tanh_forward(std::int64_t n, const T* x, T* y);

template <typename T>
void tanh_backward(std::int64_t n, const T* gy, const T* y, T* gx);

template <typename T>
void sigmoid_forward(std::int64_t n, const T* x, T* y);

template <typename T>
void sigmoid_backward(std::int64_t n, const T* gy, const T* y, T* gx);

/// y = exp(x - max) / sum(exp(x - max)) in each row of x[rows,cols]; y is neither x nor part of it.
/// With d = max - x, y is within (77 + d + ln(cols)) u_T + ceil(cols / 1024) u_64 of the exact one,
/// relatively, where it is no subnormal: each exp is off by 4 u_T for its 2 ulp and d u_T for the
/// rounded difference, whose mean over the row's weights is at most ln(cols); the sum adds 68 u_T,
/// the quotient 1.
template <typename T>
void softmax_forward(std::int64_t rows, std::int64_t cols, const T* x, T* y);

/// gx = y * (gy - sum(gy * y)) in each row; from the output y. Within
/// (71 u_T + ceil(cols / 1024) u_64) * |y| * (|gy| + sum |gy * y|) of the exact gx.
template <typename T>
void softmax_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* y, T* gx);

}  // namespace rematch::cuda
