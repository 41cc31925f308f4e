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

/// out[rows,cols] = a[rows,depth] b[depth,cols] + bias[rows], column-major and without gaps, on
/// cuBLASLt and stream(); all extents > 0, and `bias` may be null. float64 products are added in
/// float64, others in float32, and bfloat16 results are rounded once.
///
/// Deterministic: an algorithm is chosen once per shape, layout, type, precision and alignment (16
/// bytes or less) and kept for the whole process: the first that runs of those that add in an order
/// of their own, not in that in which thread blocks finish. cuBLAS promises the same bits for the
/// same algorithm on the same architecture and number of SMs.
template <typename T>
void matmul(Matrix<const T> a, Matrix<const T> b, const T* bias, T* out, const MatmulShape& shape);

/// How many such choices the process has made.
std::int64_t matmul_choices();

}  // namespace rematch::cuda
