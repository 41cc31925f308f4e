#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/cpu/reduce.h"
#include "engine/cpu/threads.h"
#include "engine/math/normalise.h"
#include "engine/math/pointwise.h"

// Normalisation of rows, each by its own statistics, whatever channels their elements have.

namespace rematch::cpu {

namespace detail {

/// Calls work(row) for all rows, on threads().
template <typename Work>
void for_each_row(std::int64_t rows, std::int64_t cols, const Work& work) {
  parallel(rows, kGrain / std::max<std::int64_t>(cols, 1) + 1, 1,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t r = begin; r < end; ++r) work(r);
           });
}

/// Calls work(first, count) for a row's elements: all at once where each has a channel of its own,
/// else a block of LaneSum at a time. A sum to which the blocks are added one by one is that of the
/// row as one run.
template <typename Work>
void for_each_block(const math::RowChannels& channels, const Work& work) {
  const std::int64_t cols = channels.columns();
  if (channels.run == 1) return work(std::int64_t{0}, cols);
  for (std::int64_t first = 0; first < cols; first += math::kSumBlock) {
    work(first, std::min(math::kSumBlock, cols - first));
  }
}

/// to[i] = own[channel of element first + i of a row] for i in [0, count).
template <typename T>
void spread(const math::RowChannels& channels, const T* own, std::int64_t first, std::int64_t count,
            T* to) {
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t channel = channels.offset(first + i);
    const std::int64_t end = std::min(count, (channel + 1) * channels.run - first);
    std::fill(to + i, to + end, own[channel]);
    i = end;
  }
}

/// `parameter` of the elements [first, first + count) of a row: that array itself where each has
/// its own, else copied to `block`, which has room for math::kSumBlock. Null for null.
template <typename T>
const T* of_block(const math::RowChannels& channels, const T* parameter, std::int64_t row,
                  std::int64_t first, std::int64_t count, T* block) {
  if (parameter == nullptr) return nullptr;
  const T* own = parameter + channels.first(row);
  if (channels.run == 1) return own + first;
  spread(channels, own, first, count, block);
  return block;
}

}  // namespace detail

/// y = (x - mean) * rstd * w + b in each row of all_x[rows, channels.columns()], with the row's
/// mean and biased variance and rstd = 1 / sqrt(var + eps), both LaneSums of the row as one run.
/// `w` and `b` may be null. A null `mean` is for 0: rstd = 1 / sqrt(mean(x^2) + eps).
template <typename T>
void normalise_rows(std::int64_t rows, const math::RowChannels& channels, const T* all_x,
                    const T* w, const T* b, T eps, T* all_y, T* mean, T* rstd) {
  const std::int64_t cols = channels.columns();
  const auto count = static_cast<double>(cols);
  detail::for_each_row(rows, cols, [=, &channels](std::int64_t r) {
    T w_block[math::kSumBlock];
    T b_block[math::kSumBlock];
    const T* const x = all_x + r * cols;
    T* const y = all_y + r * cols;
    if (mean != nullptr) {
      mean[r] = static_cast<T>(lane_sum<T>(cols, [=](std::int64_t i) { return x[i]; }) / count);
    }
    const T centre = math::row_mean(mean, r);
    const double variance =
        lane_sum<T>(cols, [=](std::int64_t i) { return math::squared_difference(x[i], centre); }) /
        count;
    const T factor = math::inverse_deviation(variance, eps);
    rstd[r] = factor;
    detail::for_each_block(channels, [&](std::int64_t first, std::int64_t n) {
      const T* from = x + first;
      T* to = y + first;
      const T* wb = detail::of_block(channels, w, r, first, n, w_block);
      const T* bb = detail::of_block(channels, b, r, first, n, b_block);
      for (std::int64_t i = 0; i < n; ++i) {
        to[i] = math::layer_norm(from[i], centre, factor, wb, bb, i);
      }
    });
  });
}

/// With xhat = (x - mean) * rstd and h = gy * w: gx = rstd * (h - mean(h) - xhat * mean(h * xhat))
/// in each row, the sums as above. `w` may be null. With a null `mean` xhat = x * rstd, and mean(h)
/// is left out.
template <typename T>
void normalise_rows_backward(std::int64_t rows, const math::RowChannels& channels, const T* all_gy,
                             const T* all_x, const T* mean, const T* rstd, const T* w, T* all_gx) {
  const std::int64_t cols = channels.columns();
  detail::for_each_row(rows, cols, [=, &channels](std::int64_t r) {
    T w_block[math::kSumBlock];
    const T* const gy = all_gy + r * cols;
    const T* const x = all_x + r * cols;
    T* const gx = all_gx + r * cols;
    const T centre = math::row_mean(mean, r);
    // Calls work(first, count, h) for each block, h(i) being that of element first + i.
    const auto each = [&](const auto& work) {
      detail::for_each_block(channels, [&](std::int64_t first, std::int64_t n) {
        const T* wb = detail::of_block(channels, w, r, first, n, w_block);
        const T* g = gy + first;
        work(first, n, [=](std::int64_t i) { return wb == nullptr ? g[i] : g[i] * wb[i]; });
      });
    };
    LaneSum<T> sum_h;
    LaneSum<T> moment;
    each([&](std::int64_t first, std::int64_t n, const auto& h) {
      const T* from = x + first;
      if (mean != nullptr) sum_h.add(n, h);
      moment.add(n, [=](std::int64_t i) { return h(i) * (from[i] - centre); });
    });
    const auto row = math::LayerNormRow<T>::make(centre, rstd[r], sum_h.total(), moment.total(),
                                                 static_cast<double>(cols));
    each([&](std::int64_t first, std::int64_t n, const auto& h) {
      const T* from = x + first;
      T* to = gx + first;
      for (std::int64_t i = 0; i < n; ++i) to[i] = row.gradient(h(i), from[i]);
    });
  });
}

}  // namespace rematch::cpu
