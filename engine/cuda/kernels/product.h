#pragma once

#include <cstdint>

namespace rematch::cuda {

/// A matrix on the device, element (i,j) at i * row + j * col.
template <typename T>
struct Strided {
  const T* data;
  std::int64_t row;
  std::int64_t col;
};

/// c[rows,cols], without gaps, = a[rows,depth] b[depth,cols] + bias[cols] in one launch; `bias` may
/// be null. Each element is one fma chain over ascending depth that begins with the bias or zero,
/// as on the CPU (engine/cpu/product.h), and so has its bits; bfloat16 is widened to float32 when
/// read and rounded when written. For products that are too small for cuBLASLt to be worth a
/// search: a long chain is slow.
template <typename T>
void product(std::int64_t rows, std::int64_t cols, std::int64_t depth, const Strided<T>& a,
             const Strided<T>& b, const T* bias, T* c);

}  // namespace rematch::cuda
