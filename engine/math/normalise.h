#pragma once

// The formulas of batch, layer, group and RMS normalisation around their sums, for every backend.

#include <cmath>
#include <cstdint>

#include "engine/math/host_device.h"

namespace rematch::math {

/// 1 / sqrt(variance + eps), in double before it is rounded.
template <typename T>
REMATCH_HD inline T inverse_deviation(double variance, T eps) {
  return static_cast<T>(1.0 / std::sqrt(variance + static_cast<double>(eps)));
}

/// Which of C channels, and so which weight and bias, the elements of a row have: element i of row
/// r has channel first(r) + offset(i).
struct RowChannels {
  /// Rows of a sample: those of one sample share no channel.
  std::int64_t groups = 1;
  /// Channels of a row.
  std::int64_t channels = 0;
  /// Neighbours that have one channel.
  std::int64_t run = 1;

  [[nodiscard]] REMATCH_HD std::int64_t first(std::int64_t row) const {
    return groups == 1 ? 0 : row % groups * channels;
  }
  [[nodiscard]] REMATCH_HD std::int64_t offset(std::int64_t i) const {
    return run == 1 ? i : i / run;
  }
  [[nodiscard]] REMATCH_HD std::int64_t columns() const { return channels * run; }
};

/// The mean that a row is centred by: none, and so 0, in RMS normalisation. x - 0 is x to the bit.
template <typename T>
REMATCH_HD inline T row_mean(const T* mean, std::int64_t row) {
  return mean == nullptr ? T(0) : mean[row];
}

/// (x - mean) * rstd * w + b; a null w or b is left out.
template <typename T>
REMATCH_HD inline T layer_norm(T x, T mean, T rstd, const T* w, const T* b, std::int64_t col) {
  const T xhat = (x - mean) * rstd;
  const T scaled = w == nullptr ? xhat : xhat * w[col];
  return b == nullptr ? scaled : scaled + b[col];
}

/// One term of the weight's gradient.
template <typename T>
REMATCH_HD inline T layer_norm_weight_term(T gy, T x, T mean, T rstd) {
  return gy * ((x - mean) * rstd);
}

/// A row's constants in the gradient of each x, with h = gy * w.
template <typename T>
struct LayerNormRow {
  T mean;
  T rstd;
  T mean_h;
  T slope;

  /// From sum(h) and sum(h * (x - mean)).
  REMATCH_HD static LayerNormRow make(T mean, T rstd, double sum_h, double moment, double count) {
    return {mean, rstd, static_cast<T>(sum_h / count),
            static_cast<T>(moment * static_cast<double>(rstd) / count) * rstd};
  }
  [[nodiscard]] REMATCH_HD T gradient(T h, T x) const {
    return rstd * (h - mean_h - (x - mean) * slope);
  }
};

/// The factor of x - mean in batch normalisation.
template <typename T>
REMATCH_HD inline T batch_norm_factor(T invstd, const T* w, std::int64_t channel) {
  return w == nullptr ? invstd : invstd * w[channel];
}

template <typename T>
REMATCH_HD inline T batch_norm(T x, T mean, T factor, T bias) {
  return (x - mean) * factor + bias;
}

/// A running statistic after one more batch.
template <typename T>
REMATCH_HD inline T running_blend(T old, double now, T momentum) {
  return static_cast<T>((1.0 - static_cast<double>(momentum)) * static_cast<double>(old) +
                        static_cast<double>(momentum) * now);
}

/// A channel's constants in the gradient of each x.
template <typename T>
struct BatchNormChannel {
  T constant = 0;
  T slope = 0;

  /// In training, from sum(gy) and sum(gy * xhat) over `count` elements; in eval both are 0.
  REMATCH_HD static BatchNormChannel make(T sum_gy, T sum_gy_xhat, T invstd, std::int64_t count) {
    const T share = T(1) / static_cast<T>(count);
    return {sum_gy * share, sum_gy_xhat * share * invstd};
  }
  [[nodiscard]] REMATCH_HD T gradient(T gy, T x, T mean, T factor) const {
    return factor * (gy - constant - (x - mean) * slope);
  }
};

}  // namespace rematch::math
