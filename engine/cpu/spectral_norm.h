#pragma once

#include <cstdint>

namespace rematch::cpu {

// Sums in the order of column_sums() and of LaneSum (engine/cpu/reduce.h).

/// v = w^T u, of w[rows, cols].
template <typename T>
void column_products(std::int64_t rows, std::int64_t cols, const T* w, const T* u, T* v);

/// s = w v, of w[rows, cols].
template <typename T>
void row_products(std::int64_t rows, std::int64_t cols, const T* w, const T* v, T* s);

/// x /= max(|x|, eps). *product becomes the inner product of x before and after, unless it is null.
template <typename T>
void normalise_vector(std::int64_t n, T eps, T* x, T* product);

/// The inner product of a and b.
template <typename T>
void inner_product(std::int64_t n, const T* a, const T* b, T* product);

/// Turns g, the gradient of w[rows, cols] / sigma = `normalised`, into that of w, where sigma is
/// u^T w v: (g - (sum of g * normalised) u v^T) / sigma.
template <typename T>
void spectral_norm_backward(std::int64_t rows, std::int64_t cols, const T* normalised, const T* u,
                            const T* v, const T* sigma, T* g);

}  // namespace rematch::cpu
