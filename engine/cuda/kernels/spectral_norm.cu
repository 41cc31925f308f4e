#include "engine/kernels/spectral_norm.h"

#include "engine/cuda/kernels/reduce.h"
#include "engine/math/spectral_norm.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct ColumnTerm {
  std::int64_t cols;
  const T* w;
  const T* u;
  __device__ void operator()(std::int64_t r, std::int64_t col, T (&sums)[1]) const {
    sums[0] += w[r * cols + col] * u[r];
  }
};

template <typename T>
struct Product {
  const T* a;
  const T* b;
  __device__ T operator()(std::int64_t i) const { return a[i] * b[i]; }
};

template <typename T>
struct Store {
  T* to;
  __device__ void operator()(std::int64_t i, double total) const { to[i] = static_cast<T>(total); }
};

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    row_products_kernel(std::int64_t rows, std::int64_t cols, const T* w, const T* v, T* s) {
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const double total = Row::template sum<T>(cols, Product<T>{w + r * cols, v});
    if (Row::leads()) s[r] = static_cast<T>(total);
  });
}

template <typename T>
__global__ void __launch_bounds__(BlockRow::kBlockThreads)
    normalise_vector_kernel(std::int64_t n, T eps, T* x, T* product) {
  const T length = math::length_of(BlockRow::sum<T>(n, Product<T>{x, x}), eps);
  if (product != nullptr) {
    const double total = BlockRow::sum<T>(n, [=](std::int64_t i) { return x[i] / length * x[i]; });
    if (BlockRow::leads()) *product = static_cast<T>(total);
  }
  BlockRow::each(n, [=](std::int64_t i) { x[i] /= length; });
}

template <typename T>
struct Gradient {
  std::int64_t cols;
  const T* product;
  const T* u;
  const T* v;
  const T* sigma;
  __device__ void operator()(std::int64_t i, T& g) const {
    const std::int64_t r = math::quotient(i, cols);
    g = math::spectral_gradient(g, *product, u[r], v[i - r * cols], *sigma);
  }
};

}  // namespace

template <typename T>
void column_products(std::int64_t rows, std::int64_t cols, const T* w, const T* u, T* v) {
  column_sums<1, T>("column_products", rows, cols, ColumnTerm<T>{cols, w, u},
                    scratch_doubles(column_scratch(rows, cols, 1)), Store<T>{v});
}

template <typename T>
void row_products(std::int64_t rows, std::int64_t cols, const T* w, const T* v, T* s) {
  if (rows <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    row_products_kernel<decltype(row)><<<blocks, threads, 0, stream()>>>(rows, cols, w, v, s);
  });
  check_launch("row_products");
}

template <typename T>
void normalise_vector(std::int64_t n, T eps, T* x, T* product) {
  normalise_vector_kernel<<<1, BlockRow::kBlockThreads, 0, stream()>>>(n, eps, x, product);
  check_launch("normalise_vector");
}

template <typename T>
void inner_product(std::int64_t n, const T* a, const T* b, T* product) {
  lane_sum<T>("inner_product", n, Product<T>{a, b}, Store<T>{product});
}

template <typename T>
void spectral_norm_backward(std::int64_t rows, std::int64_t cols, const T* normalised, const T* u,
                            const T* v, const T* sigma, T* g) {
  const std::int64_t n = rows * cols;
  if (n == 0) return;
  // Behind what the sum itself needs of the same scratch.
  const std::int64_t blocks = math::ceil_div(n, math::kSumBlock);
  T* product = reinterpret_cast<T*>(scratch_doubles(blocks + 1) + blocks);
  inner_product(n, g, normalised, product);
  visit<1>("spectral_norm_backward", n, Gradient<T>{cols, product, u, v, sigma}, InOut<T>{g});
}

REMATCH_SPECTRAL_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
