#include "engine/kernels/batch_norm.h"

#include "engine/cuda/kernels/whole_channels.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct SquaredDeviation {
  const T* x;
  const T* mean;
  __device__ T operator()(std::int64_t at, std::int64_t /*sample*/, std::int64_t channel) const {
    return math::squared_difference(x[at], mean[channel]);
  }
};

template <typename T>
struct GradientTerms {
  const T* gy;
  const T* x;
  const T* mean;
  __device__ Two<T> operator()(std::int64_t at, std::int64_t /*sample*/,
                               std::int64_t channel) const {
    const T g = gy[at];
    return {g, g * (x[at] - mean[channel])};
  }
};

template <typename T>
struct StoreMean {
  double count;
  T* mean;
  __device__ void operator()(std::int64_t channel, double total) const {
    mean[channel] = static_cast<T>(total / count);
  }
};

template <typename T>
struct StoreVariance {
  double count;
  T eps;
  T momentum;
  const T* mean;
  T* invstd;
  T* running_mean;
  T* running_var;
  __device__ void operator()(std::int64_t j, double total) const {
    invstd[j] = math::inverse_deviation(total / count, eps);
    if (running_var != nullptr) {
      running_var[j] = math::running_blend(running_var[j], total / (count - 1.0), momentum);
    }
    if (running_mean != nullptr) {
      running_mean[j] =
          math::running_blend(running_mean[j], static_cast<double>(mean[j]), momentum);
    }
  }
};

/// sums[0..c) = sum gy and sums[c..2c) = sum gy * xhat, also where wanted.
template <typename T>
struct StoreGradients {
  std::int64_t c;
  const T* invstd;
  T* sums;
  T* gw;
  T* gb;
  __device__ void operator()(std::int64_t item, double total) const {
    const bool weight = item >= c;
    const std::int64_t j = weight ? item - c : item;
    const T sum = static_cast<T>(weight ? total * static_cast<double>(invstd[j]) : total);
    sums[item] = sum;
    T* to = weight ? gw : gb;
    if (to != nullptr) to[j] = sum;
  }
};

template <typename T>
struct Normalise {
  const T* w;
  const T* b;
  const T* mean;
  const T* invstd;
  __device__ void operator()(std::int64_t j, T x, T& y) const {
    y = math::batch_norm(x, mean[j], math::batch_norm_factor(invstd[j], w, j),
                         b == nullptr ? T(0) : b[j]);
  }
};

/// With null `sums`, mean and invstd do not depend on x.
template <typename T>
struct InputGradient {
  Extents e;
  const T* mean;
  const T* invstd;
  const T* w;
  const T* sums;
  __device__ void operator()(std::int64_t j, T gy, T x, T& gx) const {
    math::BatchNormChannel<T> channel;
    if (sums != nullptr) {
      channel = math::BatchNormChannel<T>::make(sums[j], sums[e.c + j], invstd[j], e.count());
    }
    gx = channel.gradient(gy, x, mean[j], math::batch_norm_factor(invstd[j], w, j));
  }
};

template <typename T>
struct ScaledGradient {
  const T* invstd;
  const T* w;
  __device__ void operator()(std::int64_t j, T gy, T& gx) const {
    gx = gy * math::batch_norm_factor(invstd[j], w, j);
  }
};

template <typename T>
struct UseRunning {
  T eps;
  __device__ void operator()(std::int64_t /*j*/, T running_mean, T running_var, T& mean,
                             T& invstd) const {
    mean = running_mean;
    invstd = math::inverse_deviation(static_cast<double>(running_var), eps);
  }
};

}  // namespace

template <typename T>
void batch_norm_train(std::int64_t n, std::int64_t c, std::int64_t s, const T* x, const T* w,
                      const T* b, T eps, T* y, T* mean, T* invstd, T* running_mean, T* running_var,
                      T momentum) {
  const Extents e{n, c, s};
  if (train_whole_channels<T>("batch_norm_train", {e, x, w, b, eps, y, mean, invstd, running_mean,
                                                   running_var, momentum})) {
    return;
  }
  const auto count = static_cast<double>(e.count());
  double* partial = scratch_doubles(c * e.partials());
  channel_sums<T, 1>("batch_norm_train", e, Element<T>{x}, partial, StoreMean<T>{count, mean});
  channel_sums<T, 1>(
      "batch_norm_train", e, SquaredDeviation<T>{x, mean}, partial,
      StoreVariance<T>{count, eps, momentum, mean, invstd, running_mean, running_var});
  channel_map<kVector<T>>("batch_norm_train", e, Normalise<T>{w, b, mean, invstd}, In<T>{x},
                          Out<T>{y});
}

template <typename T>
void batch_norm_eval(std::int64_t n, std::int64_t c, std::int64_t s, const T* x, const T* w,
                     const T* b, const T* running_mean, const T* running_var, T eps, T* y,
                     T* mean_out, T* invstd_out) {
  visit<kVector<T>>("batch_norm_eval", c, UseRunning<T>{eps}, In<T>{running_mean},
                    In<T>{running_var}, Out<T>{mean_out}, Out<T>{invstd_out});
  channel_map<kVector<T>>("batch_norm_eval", {n, c, s}, Normalise<T>{w, b, mean_out, invstd_out},
                          In<T>{x}, Out<T>{y});
}

template <typename T>
void batch_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s, const T* gy, const T* x,
                         const T* mean, const T* invstd, const T* w, bool train, T* gx, T* gw,
                         T* gb) {
  const Extents e{n, c, s};
  constexpr const char* kName = "batch_norm_backward";
  if (gw == nullptr && gb == nullptr && !train) {
    if (gx == nullptr) return;
    channel_map<kVector<T>>(kName, e, ScaledGradient<T>{invstd, w}, In<T>{gy}, Out<T>{gx});
    return;
  }
  if (train_whole_channels_backward<T>(kName, {e, gy, x, mean, invstd, w, train, gx, gw, gb})) {
    return;
  }
  // The two partial sums of every block, then the two sums of every channel.
  double* partial = scratch_doubles(2 * c * e.partials() + 2 * c);
  T* sums = reinterpret_cast<T*>(partial + 2 * c * e.partials());
  channel_sums<Two<T>, 2>(kName, e, GradientTerms<T>{gy, x, mean}, partial,
                          StoreGradients<T>{c, invstd, sums, gw, gb});
  if (gx == nullptr) return;
  channel_map<kVector<T>>(kName, e, InputGradient<T>{e, mean, invstd, w, train ? sums : nullptr},
                          In<T>{gy}, In<T>{x}, Out<T>{gx});
}

REMATCH_BATCH_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
