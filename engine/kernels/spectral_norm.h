#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// Sums have the order of column_sums() or of LaneSum (engine/cpu/reduce.h). On the device
// normalise_vector is one launch, of one block, and row_products one; column_products and
// inner_product are up to three where rows or elements are many; spectral_norm_backward is an inner
// product and one more.

/// v = w^T u, of w[rows, cols].
REMATCH_DECLARE(void column_products(std::int64_t rows, std::int64_t cols, const T* w, const T* u,
                                     T* v));

/// s = w v, of w[rows, cols].
REMATCH_DECLARE(void row_products(std::int64_t rows, std::int64_t cols, const T* w, const T* v,
                                  T* s));

/// x /= max(|x|, eps). *product becomes the inner product of x before and after, unless it is null.
REMATCH_DECLARE(void normalise_vector(std::int64_t n, T eps, T* x, T* product));

/// The inner product of a and b.
REMATCH_DECLARE(void inner_product(std::int64_t n, const T* a, const T* b, T* product));

/// Turns g, the gradient of w[rows, cols] / sigma = `normalised`, into that of w, where sigma is
/// u^T w v: (g - (sum of g * normalised) u v^T) / sigma.
REMATCH_DECLARE(void spectral_norm_backward(std::int64_t rows, std::int64_t cols,
                                            const T* normalised, const T* u, const T* v,
                                            const T* sigma, T* g));

#define REMATCH_SPECTRAL_NORM_KERNELS(K) \
  K(column_products);                    \
  K(row_products);                       \
  K(normalise_vector);                   \
  K(inner_product);                      \
  K(spectral_norm_backward)

}  // namespace rematch
