#include "engine/kernels/batch_norm.h"

#include <algorithm>

#include "engine/cpu/channels.h"
#include "engine/math/normalise.h"
#include "engine/math/pointwise.h"

namespace rematch::cpu {

namespace {

/// Channels whose backward sums are held side by side.
constexpr std::int64_t kTile = 64;

/// to[element] = value(element, channel) in channels [begin, end).
template <typename T, typename Value>
void map(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t begin, std::int64_t end,
         T* to, const Value& value) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (s == 1) {
      for (std::int64_t j = begin; j < end; ++j) to[i * c + j] = value(i * c + j, j);
      continue;
    }
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int64_t base = (i * c + j) * s;
      for (std::int64_t k = base; k < base + s; ++k) to[k] = value(k, j);
    }
  }
}

template <typename T>
void normalise(std::int64_t n, std::int64_t c, std::int64_t s, const T* x, const T* w, const T* b,
               const T* mean, const T* invstd, T* y) {
  map(n, c, s, 0, c, y, [=](std::int64_t at, std::int64_t j) {
    return math::batch_norm(x[at], mean[j], math::batch_norm_factor(invstd[j], w, j),
                            b == nullptr ? T(0) : b[j]);
  });
}

}  // namespace

template <typename T>
void batch_norm_train(std::int64_t n, std::int64_t c, std::int64_t s, const T* x, const T* w,
                      const T* b, T eps, T* y, T* mean, T* invstd, T* running_mean, T* running_var,
                      T momentum) {
  const auto count = static_cast<double>(n * s);
  channel_sums<T>(
      n, c, s, 0, c, [=](std::int64_t at, std::int64_t, std::int64_t) { return x[at]; },
      [=](std::int64_t j, double total) { mean[j] = static_cast<T>(total / count); });
  channel_sums<T>(
      n, c, s, 0, c,
      [=](std::int64_t at, std::int64_t, std::int64_t j) {
        return math::squared_difference(x[at], mean[j]);
      },
      [=](std::int64_t j, double total) {
        invstd[j] = math::inverse_deviation(total / count, eps);
        if (running_var != nullptr) {
          running_var[j] = math::running_blend(running_var[j], total / (count - 1.0), momentum);
        }
        if (running_mean != nullptr) {
          running_mean[j] =
              math::running_blend(running_mean[j], static_cast<double>(mean[j]), momentum);
        }
      });
  normalise(n, c, s, x, w, b, mean, invstd, y);
}

template <typename T>
void batch_norm_eval(std::int64_t n, std::int64_t c, std::int64_t s, const T* x, const T* w,
                     const T* b, const T* running_mean, const T* running_var, T eps, T* y,
                     T* mean_out, T* invstd_out) {
  for (std::int64_t j = 0; j < c; ++j) {
    mean_out[j] = running_mean[j];
    invstd_out[j] = math::inverse_deviation(static_cast<double>(running_var[j]), eps);
  }
  normalise(n, c, s, x, w, b, mean_out, invstd_out, y);
}

template <typename T>
void batch_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s, const T* gy, const T* x,
                         const T* mean, const T* invstd, const T* w, bool train, T* gx, T* gw,
                         T* gb) {
  const auto factor = [=](std::int64_t j) { return math::batch_norm_factor(invstd[j], w, j); };
  if (gw == nullptr && gb == nullptr && !train) {
    if (gx != nullptr) {
      map(n, c, s, 0, c, gx, [=](std::int64_t at, std::int64_t j) { return gy[at] * factor(j); });
    }
    return;
  }
  for (std::int64_t first = 0; first < c; first += kTile) {
    // A tile of channels at a time: their sums live here, since gw and gb may be null.
    const std::int64_t last = std::min(first + kTile, c);
    T sum_gy[kTile];
    T sum_gy_xhat[kTile];
    channel_sums<T>(
        n, c, s, first, last, [=](std::int64_t at, std::int64_t, std::int64_t) { return gy[at]; },
        [&](std::int64_t j, double total) { sum_gy[j - first] = static_cast<T>(total); });
    channel_sums<T>(
        n, c, s, first, last,
        [=](std::int64_t at, std::int64_t, std::int64_t j) { return gy[at] * (x[at] - mean[j]); },
        [&](std::int64_t j, double total) {
          sum_gy_xhat[j - first] = static_cast<T>(total * static_cast<double>(invstd[j]));
        });
    if (gb != nullptr) std::copy_n(sum_gy, last - first, gb + first);
    if (gw != nullptr) std::copy_n(sum_gy_xhat, last - first, gw + first);
    if (gx == nullptr) continue;
    math::BatchNormChannel<T> channel[kTile];
    for (std::int64_t j = first; train && j < last; ++j) {
      channel[j - first] = math::BatchNormChannel<T>::make(
          sum_gy[j - first], sum_gy_xhat[j - first], invstd[j], n * s);
    }
    map(n, c, s, first, last, gx, [&](std::int64_t at, std::int64_t j) {
      return channel[j - first].gradient(gy[at], x[at], mean[j], factor(j));
    });
  }
}

REMATCH_BATCH_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
