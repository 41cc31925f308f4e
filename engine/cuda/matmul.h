#pragma once

#include <cstdint>

namespace rematch::cuda {

/// A column-major matrix on the device; columns start `stride` elements apart. With `transposed`
/// the product takes its transpose.
template <typename T>
struct Matrix {
  T* data;
  std::int64_t stride;
  bool transposed;
};

struct MatmulShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t depth = 0;
};

/// out[rows,cols] = a[rows,depth] b[depth,cols], column-major and without gaps, on cuBLASLt and
/// stream(); all extents > 0. With `bias` (may be null), bias[i] is added to row i if an algorithm
/// can do it on the way: returns whether that was so.
///
/// Deterministic: an algorithm is chosen once per shape, layout, type, precision and alignment (16
/// bytes or less) and kept for the whole process, from those that add in an order of their own, not
/// in that in which thread blocks finish. cuBLAS promises the same bits for the same algorithm on
/// the same architecture and number of SMs.
template <typename T>
bool matmul(Matrix<const T> a, Matrix<const T> b, const T* bias, T* out, const MatmulShape& shape);

}  // namespace rematch::cuda
