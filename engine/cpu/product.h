#pragma once

#include <cstdint>

namespace rematch::cpu {

/// a[i,k] at i * row + k * col.
template <typename T>
struct Strided {
  const T* data;
  std::int64_t row;
  std::int64_t col;
};

/// Multiply-adds below which a second thread costs more than it brings.
inline constexpr std::int64_t kProductGrain = 1 << 17;

/// c[rows,cols] (rows c_row apart) = a[rows,depth] b[depth,cols], on threads(). Each element is one
/// fma chain over ascending depth that begins with zero or, where `resume`, with what stands in c.
/// One of row and col is 1 in both a and b.
template <typename T>
void product(std::int64_t rows, std::int64_t cols, std::int64_t depth, const Strided<T>& a,
             const Strided<T>& b, bool resume, T* c, std::int64_t c_row);

/// The same with the transpose stored, element (i,j) at c[j * c_row + i], and chains that begin
/// with bias[i], or zero where `bias` is null.
template <typename T>
void product_transposed(std::int64_t rows, std::int64_t cols, std::int64_t depth,
                        const Strided<T>& a, const Strided<T>& b, const T* bias, T* c,
                        std::int64_t c_row);

}  // namespace rematch::cpu
