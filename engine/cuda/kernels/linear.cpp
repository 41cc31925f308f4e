#include "engine/kernels/linear.h"

#include "engine/cuda/kernels/matmul.h"
#include "engine/cuda/kernels/product.h"
#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/device.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

namespace {

/// Whether the engine's own kernel does a product of these extents.
bool is_small(std::int64_t n, std::int64_t k, std::int64_t m) {
  return n * k * m <= direct_products();
}

}  // namespace

// cuBLASLt sees columns where we have rows: a row-major array [r,c] is its column-major c x r
// matrix with leading dimension c. So each of its products below is computed as its transpose,
// whose column-major result is the row-major array that is wanted.

template <typename T>
void linear_forward(const T* x, const T* w, const T* b, T* y, std::int64_t n, std::int64_t k,
                    std::int64_t m) {
  if (n == 0 || m == 0) return;
  if (is_small(n, k, m)) return product<T>(n, m, k, {x, k, 1}, {w, 1, k}, b, y);
  // y^T[m,n] = w[m,k] x^T[k,n]: w is seen as k x m, so transposed; x as k x n, as it is.
  matmul(Matrix<const T>{w, k, true}, Matrix<const T>{x, k, false}, b, y,
         MatmulShape{.rows = m, .cols = n, .depth = k});
}

template <typename T>
void linear_grad_input(const T* gy, const T* w, T* gx, std::int64_t n, std::int64_t k,
                       std::int64_t m) {
  if (n == 0 || k == 0) return;
  if (is_small(n, k, m)) return product<T>(n, k, m, {gy, m, 1}, {w, k, 1}, nullptr, gx);
  // gx^T[k,n] = w^T[k,m] gy^T[m,n]: w is seen as k x m and gy as m x n, both as they are.
  matmul(Matrix<const T>{w, k, false}, Matrix<const T>{gy, m, false},
         static_cast<const T*>(nullptr), gx, MatmulShape{.rows = k, .cols = n, .depth = m});
}

template <typename T>
void linear_grad_weight(const T* gy, const T* x, T* gw, std::int64_t n, std::int64_t k,
                        std::int64_t m) {
  if (m == 0 || k == 0) return;
  if (is_small(n, k, m)) return product<T>(m, k, n, {gy, 1, m}, {x, k, 1}, nullptr, gw);
  // gw^T[k,m] = x^T[k,n] gy[n,m]: x is seen as k x n, as it is; gy as m x n, so transposed.
  matmul(Matrix<const T>{x, k, false}, Matrix<const T>{gy, m, true}, static_cast<const T*>(nullptr),
         gw, MatmulShape{.rows = k, .cols = m, .depth = n});
}

REMATCH_LINEAR_KERNELS(REMATCH_INSTANTIATE);
REMATCH_LINEAR_KERNELS(REMATCH_INSTANTIATE_BFLOAT16);

}  // namespace rematch::cuda
