#pragma once

#include <cstdint>

namespace rematch::cpu {

/// The mean of (x - target)^2 over n elements.
template <typename T>
T mse_forward(std::int64_t n, const T* x, const T* target);

/// gx = *g * 2 / n * (x - target).
template <typename T>
void mse_backward(std::int64_t n, const T* g, const T* x, const T* target, T* gx);

/// The mean over rows of -log_softmax(x)[row, target[row]]. log_probs[rows,cols] is filled with
/// log_softmax(x) for backward. Targets lie in [0, cols).
template <typename T>
T cross_entropy_forward(std::int64_t rows, std::int64_t cols, const T* x,
                        const std::int32_t* target, T* log_probs);

/// gx = *g / rows * (exp(log_probs) - [col == target]).
template <typename T>
void cross_entropy_backward(std::int64_t rows, std::int64_t cols, const T* g, const T* log_probs,
                            const std::int32_t* target, T* gx);

}  // namespace rematch::cpu
