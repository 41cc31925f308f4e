#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/cpu/threads.h"
#include "engine/math/lane_order.h"

namespace rematch::cpu {

/// A sum in a fixed order: 16 lanes that a run's elements enter in turn, every run starting at lane
/// 0; after each 1024 elements the lanes are added as a tree (j with j + 8, + 4, + 2, + 1) and that
/// block's sum goes to a math::GroupedSum in double.
template <typename T>
class LaneSum {
 public:
  /// Adds value(0) .. value(n - 1) as one run, which is split where a block ends.
  template <typename Value>
  void add(std::int64_t n, const Value& value) {
    for (std::int64_t first = 0; first < n;) {
      const std::int64_t count = std::min(n - first, kBlock - used_);
      add_within_block(first, count, value);
      first += count;
      used_ += count;
      if (used_ == kBlock) flush();
    }
  }

  /// The sum of everything added; the object starts again.
  double total() {
    flush();
    const double result = total_.total();
    total_ = {};
    return result;
  }

 private:
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kBlock = 1024;

  template <typename Value>
  void add_within_block(std::int64_t first, std::int64_t count, const Value& value) {
    const std::int64_t full = count / kLanes * kLanes;
    T lane[kLanes];
    std::copy_n(lane_, kLanes, lane);
    for (std::int64_t i = first; i < first + full; i += kLanes) {
      for (std::int64_t l = 0; l < kLanes; ++l) lane[l] += value(i + l);
    }
    std::copy_n(lane, kLanes, lane_);
    for (std::int64_t l = 0; l < count - full; ++l) lane_[l] += value(first + full + l);
  }

  void flush() {
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::int64_t l = 0; l < half; ++l) lane_[l] += lane_[l + half];
    }
    total_.add(static_cast<double>(lane_[0]));
    std::fill_n(lane_, kLanes, T(0));
    used_ = 0;
  }

  T lane_[kLanes] = {};
  math::GroupedSum<double> total_;
  std::int64_t used_ = 0;
};

/// The sum of value(0) .. value(n - 1) as one run of a LaneSum.
template <typename T, typename Value>
double lane_sum(std::int64_t n, const Value& value) {
  LaneSum<T> sum;
  sum.add(n, value);
  return sum.total();
}

/// Calls out(j, total) with the sum of value(row, j) over the rows, for each of `cols` columns: in
/// Sum within a chunk of math::kChunkRows rows, a math::GroupedSum in double across. Threads share
/// out columns.
template <typename Sum, typename Value, typename Out>
void column_sums(std::int64_t rows, std::int64_t cols, const Value& value, const Out& out) {
  // So many side by side, for a column's elements lie far apart.
  constexpr std::int64_t kTile = 64;
  const std::int64_t grain = kGrain / std::max<std::int64_t>(rows, 1) + 1;
  parallel(cols, grain, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t left = begin; left < end; left += kTile) {
      const std::int64_t count = std::min(kTile, end - left);
      math::GroupedSum<double> total[kTile];
      for (std::int64_t first = 0; first < rows; first += math::kChunkRows) {
        const std::int64_t last = std::min(rows, first + math::kChunkRows);
        Sum chunk[kTile] = {};
        for (std::int64_t r = first; r < last; ++r) {
          for (std::int64_t j = 0; j < count; ++j) chunk[j] += value(r, left + j);
        }
        for (std::int64_t j = 0; j < count; ++j) total[j].add(static_cast<double>(chunk[j]));
      }
      for (std::int64_t j = 0; j < count; ++j) out(left + j, total[j].total());
    }
  });
}

}  // namespace rematch::cpu
