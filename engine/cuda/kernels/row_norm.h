#pragma once

// engine/cpu/row_norm.h on the device. Included by .cu files alone.

#include <cstdint>

#include "engine/cuda/kernels/reduce.h"
#include "engine/math/normalise.h"
#include "engine/math/pointwise.h"

namespace rematch::cuda {

namespace detail {

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    normalise_rows_kernel(std::int64_t rows, math::RowChannels channels, const T* all_x,
                          const T* all_w, const T* all_b, T eps, T* all_y, T* mean, T* rstd) {
  const std::int64_t cols = channels.columns();
  const auto count = static_cast<double>(cols);
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* x = all_x + r * cols;
    T* y = all_y + r * cols;
    const T* w = all_w == nullptr ? nullptr : all_w + channels.first(r);
    const T* b = all_b == nullptr ? nullptr : all_b + channels.first(r);
    T centre = 0;
    if (mean != nullptr) {
      centre =
          static_cast<T>(Row::template sum<T>(cols, [=](std::int64_t i) { return x[i]; }) / count);
    }
    const double variance =
        Row::template sum<T>(
            cols, [=](std::int64_t i) { return math::squared_difference(x[i], centre); }) /
        count;
    const T factor = math::inverse_deviation(variance, eps);
    if (Row::leads()) {
      if (mean != nullptr) mean[r] = centre;
      rstd[r] = factor;
    }
    Row::each(cols, [=](std::int64_t i) {
      y[i] = math::layer_norm(x[i], centre, factor, w, b, channels.offset(i));
    });
  });
}

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    normalise_rows_backward_kernel(std::int64_t rows, math::RowChannels channels, const T* all_gy,
                                   const T* all_x, const T* mean, const T* rstd, const T* all_w,
                                   T* all_gx) {
  const std::int64_t cols = channels.columns();
  const auto count = static_cast<double>(cols);
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* gy = all_gy + r * cols;
    const T* x = all_x + r * cols;
    T* gx = all_gx + r * cols;
    const T* w = all_w == nullptr ? nullptr : all_w + channels.first(r);
    const T centre = math::row_mean(mean, r);
    const auto h = [=](std::int64_t i) {
      return w == nullptr ? gy[i] : gy[i] * w[channels.offset(i)];
    };
    const Two<double> sums = Row::template sum<Two<T>>(cols, [=](std::int64_t i) {
      const T term = h(i);
      return Two<T>{term, term * (x[i] - centre)};
    });
    const auto row =
        math::LayerNormRow<T>::make(centre, rstd[r], mean == nullptr ? 0.0 : sums.a, sums.b, count);
    Row::each(cols, [=](std::int64_t i) { gx[i] = row.gradient(h(i), x[i]); });
  });
}

}  // namespace detail

/// As cpu::normalise_rows, with its bits.
template <typename T>
void normalise_rows(const char* kernel, std::int64_t rows, const math::RowChannels& channels,
                    const T* x, const T* w, const T* b, T eps, T* y, T* mean, T* rstd) {
  if (rows <= 0) return;
  with_row(rows, channels.columns(), [=](auto row, unsigned blocks, int threads) {
    detail::normalise_rows_kernel<decltype(row)>
        <<<blocks, threads, 0, stream()>>>(rows, channels, x, w, b, eps, y, mean, rstd);
  });
  check_launch(kernel);
}

/// As cpu::normalise_rows_backward, with its bits.
template <typename T>
void normalise_rows_backward(const char* kernel, std::int64_t rows,
                             const math::RowChannels& channels, const T* gy, const T* x,
                             const T* mean, const T* rstd, const T* w, T* gx) {
  if (rows <= 0 || channels.columns() <= 0) return;
  with_row(rows, channels.columns(), [=](auto row, unsigned blocks, int threads) {
    detail::normalise_rows_backward_kernel<decltype(row)>
        <<<blocks, threads, 0, stream()>>>(rows, channels, gy, x, mean, rstd, w, gx);
  });
  check_launch(kernel);
}

/// Takes the sums of gw's and gb's terms for each of `count` channels, in this order.
template <typename T>
struct ParameterGradients {
  std::int64_t count;
  T* gw;
  T* gb;
  __device__ void operator()(std::int64_t item, double total) const {
    T* to = item < count ? gw : gb;
    if (to != nullptr) to[item < count ? item : item - count] = static_cast<T>(total);
  }
};

}  // namespace rematch::cuda
