#include "engine/cuda/layer_norm.h"

#include "engine/cuda/reduce.h"
#include "engine/math/normalise.h"
#include "engine/math/pointwise.h"

namespace rematch::cuda {

namespace {

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    layer_norm_kernel(std::int64_t rows, std::int64_t cols, const T* all_x, const T* w, const T* b,
                      T eps, T* all_y, T* mean, T* rstd) {
  const auto count = static_cast<double>(cols);
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* x = all_x + r * cols;
    T* y = all_y + r * cols;
    const T centre =
        static_cast<T>(Row::template sum<T>(cols, [=](std::int64_t i) { return x[i]; }) / count);
    const double variance =
        Row::template sum<T>(
            cols, [=](std::int64_t i) { return math::squared_difference(x[i], centre); }) /
        count;
    const T factor = math::inverse_deviation(variance, eps);
    if (Row::leads()) {
      mean[r] = centre;
      rstd[r] = factor;
    }
    Row::each(cols,
              [=](std::int64_t i) { y[i] = math::layer_norm(x[i], centre, factor, w, b, i); });
  });
}

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    layer_norm_gradient_kernel(std::int64_t rows, std::int64_t cols, const T* all_gy,
                               const T* all_x, const T* mean, const T* rstd, const T* w,
                               T* all_gx) {
  const auto count = static_cast<double>(cols);
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* gy = all_gy + r * cols;
    const T* x = all_x + r * cols;
    T* gx = all_gx + r * cols;
    const T centre = mean[r];
    const auto h = [=](std::int64_t i) { return w == nullptr ? gy[i] : gy[i] * w[i]; };
    const Two<double> sums = Row::template sum<Two<T>>(cols, [=](std::int64_t i) {
      const T term = h(i);
      return Two<T>{term, term * (x[i] - centre)};
    });
    const auto row = math::LayerNormRow<T>::make(centre, rstd[r], sums.a, sums.b, count);
    Row::each(cols, [=](std::int64_t i) { gx[i] = row.gradient(h(i), x[i]); });
  });
}

/// The terms of gw and gb in a row.
template <typename T>
struct ParameterTerms {
  std::int64_t cols;
  const T* gy;
  const T* x;
  const T* mean;
  const T* rstd;
  __device__ void operator()(std::int64_t r, std::int64_t col, T (&sums)[2]) const {
    const std::int64_t at = r * cols + col;
    sums[0] += math::layer_norm_weight_term(gy[at], x[at], mean[r], rstd[r]);
    sums[1] += gy[at];
  }
};

template <typename T>
struct ParameterGradients {
  std::int64_t cols;
  T* gw;
  T* gb;
  __device__ void operator()(std::int64_t item, double total) const {
    T* to = item < cols ? gw : gb;
    if (to != nullptr) to[item < cols ? item : item - cols] = static_cast<T>(total);
  }
};

}  // namespace

template <typename T>
void layer_norm_forward(std::int64_t rows, std::int64_t cols, const T* x, const T* w, const T* b,
                        T eps, T* y, T* mean, T* rstd) {
  if (rows <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    layer_norm_kernel<decltype(row)>
        <<<blocks, threads, 0, stream()>>>(rows, cols, x, w, b, eps, y, mean, rstd);
  });
  check_launch("layer_norm_forward");
}

template <typename T>
void layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* x,
                         const T* mean, const T* rstd, const T* w, T* gx, T* gw, T* gb) {
  if (gw != nullptr || gb != nullptr) {
    column_sums<2, T>("layer_norm_backward", rows, cols, ParameterTerms<T>{cols, gy, x, mean, rstd},
                      scratch_doubles(column_scratch(rows, cols, 2)),
                      ParameterGradients<T>{cols, gw, gb});
  }
  if (gx == nullptr || rows <= 0 || cols <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    layer_norm_gradient_kernel<decltype(row)>
        <<<blocks, threads, 0, stream()>>>(rows, cols, gy, x, mean, rstd, w, gx);
  });
  check_launch("layer_norm_backward");
}

#define REMATCH_INSTANTIATE(T)                                                                  \
  template void layer_norm_forward(std::int64_t, std::int64_t, const T*, const T*, const T*, T, \
                                   T*, T*, T*);                                                 \
  template void layer_norm_backward(std::int64_t, std::int64_t, const T*, const T*, const T*,   \
                                    const T*, const T*, T*, T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cuda
