#include "engine/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "engine/cpu/gemm.h"
#include "engine/cpu/threads.h"

namespace rematch::cpu {

namespace {

constexpr std::int64_t kPackDepth = 256;
constexpr std::int64_t kPackPanels = 4;

/// chain_product with b's rows `ldb` apart. A large b goes through a packed copy, block by block,
/// so that column tiles read memory in order; chains resume from c between blocks of depth.
template <typename T>
void product_part(std::int64_t rows, std::int64_t cols, std::int64_t depth, Strided<T> a,
                  const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  using Kind = typename ChainStart<T>::Kind;
  constexpr std::int64_t kPanel = 2 * Simd<T>::kWidth;
  const bool pack = rows > 12 && depth * cols >= 32 * 256;
  if (!pack) {
    chain_product(rows, cols, depth, a, b, StridedRows{ldb}, ChainStart<T>{}, c, ldc);
    return;
  }
  alignas(64) static thread_local T packed[kPackPanels * kPackDepth * kPanel];
  for (std::int64_t k0 = 0; k0 < depth; k0 += kPackDepth) {
    const std::int64_t block_depth = std::min(kPackDepth, depth - k0);
    const ChainStart<T> start{k0 == 0 ? Kind::kZero : Kind::kOutput, nullptr};
    const Strided<T> block_a{a.data + k0 * a.col, a.row, a.col};
    for (std::int64_t j0 = 0; j0 < cols; j0 += kPackPanels * kPanel) {
      const std::int64_t block_cols = std::min(kPackPanels * kPanel, cols - j0);
      for (std::int64_t k = 0; k < block_depth; ++k) {
        const T* from = b + (k0 + k) * ldb + j0;
        for (std::int64_t j = 0; j < block_cols; j += kPanel) {
          std::memcpy(packed + j * block_depth + k * kPanel, from + j,
                      sizeof(T) * static_cast<std::size_t>(std::min(kPanel, block_cols - j)));
        }
      }
      for (std::int64_t j = 0; j < block_cols; j += kPanel) {
        chain_product(rows, std::min(kPanel, block_cols - j), block_depth, block_a,
                      packed + j * block_depth, StridedRows{kPanel}, start, c + j0 + j, ldc);
      }
    }
  }
}

/// Multiply-adds below which a second thread costs more than it brings.
constexpr std::int64_t kProductGrain = 1 << 17;

/// The same, columns shared out among threads.
template <typename T>
void product(std::int64_t rows, std::int64_t cols, std::int64_t depth, Strided<T> a, const T* b,
             std::int64_t ldb, T* c, std::int64_t ldc) {
  constexpr std::int64_t kPanel = 2 * Simd<T>::kWidth;
  const std::int64_t grain = kProductGrain / std::max<std::int64_t>(rows * depth, 1) + 1;
  parallel(cols, grain, kPanel, [=](std::int64_t begin, std::int64_t end) {
    product_part(rows, end - begin, depth, a, b + begin, ldb, c + begin, ldc);
  });
}

}  // namespace

template <typename T>
void linear_forward(const T* x, const T* w, const T* b, T* y, std::int64_t n, std::int64_t k,
                    std::int64_t m) {
  const std::int64_t grain = kProductGrain / std::max<std::int64_t>(n * k, 1) + 1;
  parallel(m, grain, 3, [=](std::int64_t begin, std::int64_t end) {
    lane_product<false>(n, end - begin, x, k, w + begin * k, StridedRows{k}, 1, k, 0, 0,
                        [=](std::int64_t i, std::int64_t j, T value) {
                          T& to = y[i * m + begin + j];
                          to = b == nullptr ? value : value + b[begin + j];
                        });
  });
}

template <typename T>
void linear_grad_input(const T* gy, const T* w, T* gx, std::int64_t n, std::int64_t k,
                       std::int64_t m) {
  product<T>(n, k, m, {gy, m, 1}, w, k, gx, k);
}

template <typename T>
void linear_grad_weight(const T* gy, const T* x, T* gw, std::int64_t n, std::int64_t k,
                        std::int64_t m) {
  product<T>(m, k, n, {gy, 1, m}, x, k, gw, k);
}

template <typename T>
void sum_rows(const T* gy, T* gb, std::int64_t n, std::int64_t m) {
  parallel(m, kGrain / std::max<std::int64_t>(n, 1) + 1, 16,
           [=](std::int64_t begin, std::int64_t end) {
             std::fill(gb + begin, gb + end, T(0));
             for (std::int64_t i = 0; i < n; ++i) {
               const T* row = gy + i * m;
               for (std::int64_t j = begin; j < end; ++j) gb[j] += row[j];
             }
           });
}

#define REMATCH_INSTANTIATE(T)                                                               \
  template void linear_forward(const T*, const T*, const T*, T*, std::int64_t, std::int64_t, \
                               std::int64_t);                                                \
  template void linear_grad_input(const T*, const T*, T*, std::int64_t, std::int64_t,        \
                                  std::int64_t);                                             \
  template void linear_grad_weight(const T*, const T*, T*, std::int64_t, std::int64_t,       \
                                   std::int64_t);                                            \
  template void sum_rows(const T*, T*, std::int64_t, std::int64_t);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
