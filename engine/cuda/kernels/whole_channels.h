#pragma once

// Batch normalisation of channels that a thread block holds in shared memory, or, with s = 1, that
// a thread adds up alone: one launch. Each value is read once. Bits are those of
// channel_sums and channel_map. Included by .cu files alone.

#include <cstdint>

#include "engine/cuda/kernels/channels.h"
#include "engine/math/normalise.h"
#include "engine/math/pointwise.h"

namespace rematch::cuda {

/// The arguments of batch_norm_train.
template <typename T>
struct Training {
  Extents e;
  const T* x;
  const T* w;
  const T* b;
  T eps;
  T* y;
  T* mean;
  T* invstd;
  T* running_mean;
  T* running_var;
  T momentum;

  __device__ T centre(double sum) const {
    return static_cast<T>(sum / static_cast<double>(e.count()));
  }
  __device__ T deviation(double squares) const {
    return math::inverse_deviation(squares / static_cast<double>(e.count()), eps);
  }
  __device__ void keep(std::int64_t j, T centre, T deviation, double squares) const {
    mean[j] = centre;
    invstd[j] = deviation;
    if (running_var != nullptr) {
      const double unbiased = squares / (static_cast<double>(e.count()) - 1.0);
      running_var[j] = math::running_blend(running_var[j], unbiased, momentum);
    }
    if (running_mean != nullptr) {
      running_mean[j] = math::running_blend(running_mean[j], static_cast<double>(centre), momentum);
    }
  }
  /// y of an x of channel j.
  __device__ auto normalise(std::int64_t j, T centre, T deviation) const {
    const T factor = math::batch_norm_factor(deviation, w, j);
    const T shift = b == nullptr ? T(0) : b[j];
    return [=](T value) { return math::batch_norm(value, centre, factor, shift); };
  }
};

/// The arguments of batch_norm_backward.
template <typename T>
struct TrainingGradient {
  Extents e;
  const T* gy;
  const T* x;
  const T* mean;
  const T* invstd;
  const T* w;
  bool train;
  T* gx;
  T* gw;
  T* gb;

  __device__ Two<T> term(T g, T value, T centre) const { return {g, g * (value - centre)}; }
  __device__ T bias(const Two<double>& sums) const { return static_cast<T>(sums.a); }
  __device__ T weight(std::int64_t j, const Two<double>& sums) const {
    return static_cast<T>(sums.b * static_cast<double>(invstd[j]));
  }
  __device__ void keep(std::int64_t j, const Two<double>& sums) const {
    if (gb != nullptr) gb[j] = bias(sums);
    if (gw != nullptr) gw[j] = weight(j, sums);
  }
  /// gx of a gy and an x of channel j.
  __device__ auto gradient(std::int64_t j, const Two<double>& sums) const {
    math::BatchNormChannel<T> channel;
    if (train) {
      channel = math::BatchNormChannel<T>::make(bias(sums), weight(j, sums), invstd[j], e.count());
    }
    const T centre = mean[j];
    const T factor = math::batch_norm_factor(invstd[j], w, j);
    return [=](T g, T value) { return channel.gradient(g, value, centre, factor); };
  }
};

namespace detail {

/// Elements that a thread block holds.
template <typename T>
inline constexpr std::int64_t kHeld = 32768 / static_cast<std::int64_t>(sizeof(T));

/// f(i, where element i of the channel is in the array) for this thread's elements of a channel,
/// without a division each.
template <typename F>
__device__ void each_of_channel(const Extents& e, std::int64_t channel, const F& f) {
  const auto s = static_cast<unsigned>(e.s);
  const auto count = static_cast<unsigned>(e.count());
  const unsigned samples = blockDim.x / s;
  const unsigned rest = blockDim.x - samples * s;
  unsigned sample = threadIdx.x / s;
  unsigned at = threadIdx.x - sample * s;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
    f(i, (sample * e.c + channel) * e.s + at);
    sample += samples;
    at += rest;
    if (at >= s) {
      at -= s;
      ++sample;
    }
  }
}

/// The sum of value(i) over the elements of a channel, in all threads of the block.
template <typename V, typename Value>
__device__ Wide<V> held_sum(const Extents& e, const Value& value) {
  return BlockRow::sum_blocks<V>(e.partials(), [&](std::int64_t block, std::int64_t lane) {
    return math::lane_of_block<V>(
        e.count(), e.s, block, lane,
        [&](std::int64_t sample, std::int64_t i) { return value(sample * e.s + i); });
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) train_planes_kernel(Training<T> a) {
  __shared__ T x[kHeld<T>];
  for (std::int64_t j = blockIdx.x; j < a.e.c; j += gridDim.x) {
    each_of_channel(a.e, j, [&](unsigned i, std::int64_t at) { x[i] = a.x[at]; });
    __syncthreads();
    const T centre = a.centre(held_sum<T>(a.e, [&](std::int64_t i) { return x[i]; }));
    const double squares =
        held_sum<T>(a.e, [&](std::int64_t i) { return math::squared_difference(x[i], centre); });
    const T deviation = a.deviation(squares);
    if (threadIdx.x == 0) a.keep(j, centre, deviation, squares);
    const auto normalise = a.normalise(j, centre, deviation);
    // Each thread reads back what it stored, and the next round stores that alone.
    each_of_channel(a.e, j, [&](unsigned i, std::int64_t at) { a.y[at] = normalise(x[i]); });
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) train_planes_backward_kernel(TrainingGradient<T> a) {
  __shared__ T gy[kHeld<T> / 2];
  __shared__ T x[kHeld<T> / 2];
  for (std::int64_t j = blockIdx.x; j < a.e.c; j += gridDim.x) {
    each_of_channel(a.e, j, [&](unsigned i, std::int64_t at) {
      gy[i] = a.gy[at];
      x[i] = a.x[at];
    });
    __syncthreads();
    const T centre = a.mean[j];
    const Two<double> sums =
        held_sum<Two<T>>(a.e, [&](std::int64_t i) { return a.term(gy[i], x[i], centre); });
    if (threadIdx.x == 0) a.keep(j, sums);
    if (a.gx == nullptr) continue;
    const auto gradient = a.gradient(j, sums);
    each_of_channel(a.e, j, [&](unsigned i, std::int64_t at) { a.gx[at] = gradient(gy[i], x[i]); });
  }
}

/// s = 1, and one chunk of rows.
template <typename T>
__global__ void __launch_bounds__(kThreads) train_rows_kernel(Training<T> a) {
  const std::int64_t c = a.e.c;
  for (std::int64_t j = global_thread(); j < c; j += global_threads()) {
    double sum = 0;
    REMATCH_UNROLL
    for (std::int64_t i = 0; i < a.e.n; ++i) sum += static_cast<double>(a.x[i * c + j]);
    const T centre = a.centre(sum);
    double squares = 0;
    REMATCH_UNROLL
    for (std::int64_t i = 0; i < a.e.n; ++i) {
      squares += static_cast<double>(math::squared_difference(a.x[i * c + j], centre));
    }
    const T deviation = a.deviation(squares);
    a.keep(j, centre, deviation, squares);
    const auto normalise = a.normalise(j, centre, deviation);
    for (std::int64_t i = 0; i < a.e.n; ++i) a.y[i * c + j] = normalise(a.x[i * c + j]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) train_rows_backward_kernel(TrainingGradient<T> a) {
  const std::int64_t c = a.e.c;
  for (std::int64_t j = global_thread(); j < c; j += global_threads()) {
    const T centre = a.mean[j];
    Two<double> sums;
    REMATCH_UNROLL
    for (std::int64_t i = 0; i < a.e.n; ++i) {
      sums += WideOf<Two<T>>::from(a.term(a.gy[i * c + j], a.x[i * c + j], centre));
    }
    a.keep(j, sums);
    if (a.gx == nullptr) continue;
    const auto gradient = a.gradient(j, sums);
    for (std::int64_t i = 0; i < a.e.n; ++i) {
      a.gx[i * c + j] = gradient(a.gy[i * c + j], a.x[i * c + j]);
    }
  }
}

/// Whether one launch does it for `arrays` arrays of these extents.
template <typename T>
bool is_held(const Extents& e, int arrays) {
  return e.s == 1 ? e.n <= math::kChunkRows : e.count() <= kHeld<T> / arrays;
}

}  // namespace detail

/// False if the channels are too large; then nothing was done.
template <typename T>
bool train_whole_channels(const char* kernel, const Training<T>& a) {
  if (a.e.elements() <= 0 || !detail::is_held<T>(a.e, 1)) return false;
  if (a.e.s == 1) {
    detail::train_rows_kernel<<<grid_for(a.e.c), kThreads, 0, stream()>>>(a);
  } else {
    detail::train_planes_kernel<<<grid_for(a.e.c, 1), kThreads, 0, stream()>>>(a);
  }
  check_launch(kernel);
  return true;
}

/// The same.
template <typename T>
bool train_whole_channels_backward(const char* kernel, const TrainingGradient<T>& a) {
  if (a.e.elements() <= 0 || !detail::is_held<T>(a.e, 2)) return false;
  if (a.e.s == 1) {
    detail::train_rows_backward_kernel<<<grid_for(a.e.c), kThreads, 0, stream()>>>(a);
  } else {
    detail::train_planes_backward_kernel<<<grid_for(a.e.c, 1), kThreads, 0, stream()>>>(a);
  }
  check_launch(kernel);
  return true;
}

}  // namespace rematch::cuda
