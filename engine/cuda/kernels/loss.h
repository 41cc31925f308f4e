#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/loss.h on the device, with its contracts: pointers are the device's, work goes to
// stream(). What the CPU returns is written to *out, and the gradient `g` of the loss is read from
// the device: nothing waits. Formulas and orders of sums are the CPU's, so the bits are, NaN
// payloads apart; the error of a sum is that of engine/math/lane_order.h.

/// *out = the mean of (x - target)^2 over n elements, within
/// ((64 + 4 + 3) u_T + (ceil(n / 1024) + 1) u_64) * the mean of the exact one.
template <typename T>
void mse_forward(std::int64_t n, const T* x, const T* target, T* out);

template <typename T>
void mse_backward(std::int64_t n, const T* g, const T* x, const T* target, T* gx);

/// *out = the mean over rows of -log_softmax(x)[row, target[row]]. log_probs[rows,cols] is filled
/// with log_softmax(x) for backward. A target outside [0, cols) makes *out NaN; nothing outside the
/// row is read. With m = max |x - top| in a row, an element of log_probs is within
/// (72 + 4 ln(cols) + m + |log_prob|) u_T + ceil(cols / 1024) u_64 of the exact one, and *out
/// within the mean of that over rows, plus (rows + 1) u_64 and u_T of its size.
template <typename T>
void cross_entropy_forward(std::int64_t rows, std::int64_t cols, const T* x,
                           const std::int32_t* target, T* log_probs, T* out);

template <typename T>
void cross_entropy_backward(std::int64_t rows, std::int64_t cols, const T* g, const T* log_probs,
                            const std::int32_t* target, T* gx);

}  // namespace rematch::cuda
