#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/spectral_norm.h on the device: pointers are the device's, work goes to stream(), and
// every result has the CPU's bits.

/// One launch, or up to three where rows are many.
template <typename T>
void column_products(std::int64_t rows, std::int64_t cols, const T* w, const T* u, T* v);

/// One launch.
template <typename T>
void row_products(std::int64_t rows, std::int64_t cols, const T* w, const T* v, T* s);

/// One launch, of one block.
template <typename T>
void normalise_vector(std::int64_t n, T eps, T* x, T* product);

/// One launch, or up to three where elements are many.
template <typename T>
void inner_product(std::int64_t n, const T* a, const T* b, T* product);

/// The launches of an inner product, and one.
template <typename T>
void spectral_norm_backward(std::int64_t rows, std::int64_t cols, const T* normalised, const T* u,
                            const T* v, const T* sigma, T* g);

}  // namespace rematch::cuda
