#pragma once

// Sums over, and maps along, the channels of an array [n,c,s]. Included by .cu files alone.

#include <cstdint>
#include <limits>

#include "engine/cuda/kernels/reduce.h"

namespace rematch::cuda {

/// An array x[n,c,s].
struct Extents {
  std::int64_t n;
  std::int64_t c;
  std::int64_t s;

  [[nodiscard]] std::int64_t elements() const { return n * c * s; }
  /// Elements of a channel.
  [[nodiscard]] REMATCH_HD std::int64_t count() const { return n * s; }
  /// Partial sums of a channel.
  [[nodiscard]] REMATCH_HD std::int64_t partials() const {
    return s == 1 ? math::ceil_div(n, math::kChunkRows) : math::ceil_div(n * s, math::kSumBlock);
  }
};

namespace detail {

__device__ inline void store_partial(double* partial, std::int64_t /*stride*/, std::int64_t at,
                                     double sum) {
  partial[at] = sum;
}
__device__ inline void store_partial(double* partial, std::int64_t stride, std::int64_t at,
                                     const Two<double>& sum) {
  partial[at] = sum.a;
  partial[stride + at] = sum.b;
}

/// The sums of value(element, sample, channel) over each block of LaneSum, a half-warp a block; s
/// > 1.
template <typename V, typename Value>
__global__ void __launch_bounds__(kThreads)
    plane_sums_kernel(Extents e, Value value, double* partial) {
  const std::int64_t blocks = e.partials();
  const std::int64_t step = global_threads() / kHalfWarp;
  for (std::int64_t id = global_thread() / kHalfWarp; id < e.c * blocks; id += step) {
    const std::int64_t channel = math::quotient(id, blocks);
    const V lane =
        math::lane_of_block<V>(e.count(), e.s, id - channel * blocks, threadIdx.x % kHalfWarp,
                               [=](std::int64_t sample, std::int64_t i) {
                                 return value((sample * e.c + channel) * e.s + i, sample, channel);
                               });
    const V sum = tree_sum(lane);
    if (threadIdx.x % kHalfWarp == 0) {
      store_partial(partial, e.c * blocks, id, WideOf<V>::from(sum));
    }
  }
}

/// The same over chunks of rows, a thread a channel and chunk, in double; s = 1.
template <typename V, typename Value>
__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(Extents e, Value value, double* partial) {
  const std::int64_t chunks = e.partials();
  for (std::int64_t id = global_thread(); id < e.c * chunks; id += global_threads()) {
    const std::int64_t chunk = math::quotient(id, e.c);
    const std::int64_t channel = id - chunk * e.c;
    const std::int64_t first = chunk * math::kChunkRows;
    const std::int64_t last = first + math::kChunkRows < e.n ? first + math::kChunkRows : e.n;
    Wide<V> sum{};
    REMATCH_UNROLL
    for (std::int64_t i = first; i < last; ++i) {
      sum += WideOf<V>::from(value(i * e.c + channel, i, channel));
    }
    store_partial(partial, e.c * chunks, channel * chunks + chunk, sum);
  }
}

template <typename Finish>
__device__ void finish_channel(std::int64_t /*c*/, std::int64_t channel, double sum,
                               const Finish& finish) {
  finish(channel, 0.0 + sum);
}
template <typename Finish>
__device__ void finish_channel(std::int64_t c, std::int64_t channel, const Two<double>& sum,
                               const Finish& finish) {
  finish(channel, 0.0 + sum.a);
  finish(c + channel, 0.0 + sum.b);
}

/// Channels of one partial sum each: a half-warp a channel if s > 1, else a thread.
template <typename V, typename Value, typename Finish>
__global__ void __launch_bounds__(kThreads)
    one_plane_kernel(Extents e, Value value, Finish finish) {
  const std::int64_t step = global_threads() / kHalfWarp;
  for (std::int64_t channel = global_thread() / kHalfWarp; channel < e.c; channel += step) {
    const V lane =
        math::lane_of_block<V>(e.count(), e.s, std::int64_t{0}, threadIdx.x % kHalfWarp,
                               [=](std::int64_t sample, std::int64_t i) {
                                 return value((sample * e.c + channel) * e.s + i, sample, channel);
                               });
    const V sum = tree_sum(lane);
    if (threadIdx.x % kHalfWarp == 0) finish_channel(e.c, channel, WideOf<V>::from(sum), finish);
  }
}
template <typename V, typename Value, typename Finish>
__global__ void __launch_bounds__(kThreads)
    one_column_kernel(Extents e, Value value, Finish finish) {
  for (std::int64_t channel = global_thread(); channel < e.c; channel += global_threads()) {
    Wide<V> sum{};
    REMATCH_UNROLL
    for (std::int64_t i = 0; i < e.n; ++i) {
      sum += WideOf<V>::from(value(i * e.c + channel, i, channel));
    }
    finish_channel(e.c, channel, sum, finish);
  }
}

template <int kWidth, typename Index, typename F, typename... Arrays>
__global__ void __launch_bounds__(kThreads)
    channel_map_kernel(std::int64_t packs, Index c, Index s, F f, Arrays... arrays) {
  for (std::int64_t p = global_thread(); p < packs; p += global_threads()) {
    const Index first = static_cast<Index>(p) * kWidth;
    const Index channel = (s == 1 ? first : first / s) % c;
    visit_loaded<kWidth>(f, p, static_cast<std::int64_t>(channel), s == 1 ? 1 : 0,
                         loaded<kWidth>(arrays, p)...);
  }
}

template <int kWidth, typename F, typename... Arrays>
void launch_map(const Extents& e, const F& f, Arrays... arrays) {
  const std::int64_t packs = e.elements() / kWidth;
  const unsigned blocks = grid_for(packs);
  // Division of 32 bits is many times faster than of 64.
  if (e.elements() <= std::numeric_limits<std::int32_t>::max()) {
    channel_map_kernel<kWidth, std::uint32_t><<<blocks, kThreads, 0, stream()>>>(
        packs, static_cast<std::uint32_t>(e.c), static_cast<std::uint32_t>(e.s), f, arrays...);
  } else {
    channel_map_kernel<kWidth, std::int64_t>
        <<<blocks, kThreads, 0, stream()>>>(packs, e.c, e.s, f, arrays...);
  }
}

}  // namespace detail

/// finish(k * c + channel, total) of the k-th component of V's sums over each channel.
template <typename V, int kSums, typename Value, typename Finish>
void channel_sums(const char* kernel, const Extents& e, const Value& value, double* partial,
                  const Finish& finish) {
  const std::int64_t count = e.partials();
  if (count == 1 && e.c > 0) {
    if (e.s == 1) {
      detail::one_column_kernel<V><<<grid_for(e.c), kThreads, 0, stream()>>>(e, value, finish);
    } else {
      detail::one_plane_kernel<V>
          <<<grid_for(e.c, kThreads / kHalfWarp), kThreads, 0, stream()>>>(e, value, finish);
    }
    return check_launch(kernel);
  }
  if (e.elements() > 0) {
    if (e.s == 1) {
      detail::row_sums_kernel<V>
          <<<grid_for(e.c * count), kThreads, 0, stream()>>>(e, value, partial);
    } else {
      detail::plane_sums_kernel<V>
          <<<grid_for(e.c * count, kThreads / kHalfWarp), kThreads, 0, stream()>>>(e, value,
                                                                                   partial);
    }
    check_launch(kernel);
  }
  totals(kernel, kSums * e.c, count, partial, finish);
}

/// f(channel, element of each array by reference) on packs that lie in one plane (s > 1) or on
/// neighbouring channels (s = 1).
template <int kWidth, typename F, typename... Arrays>
void channel_map(const char* kernel, const Extents& e, const F& f, Arrays... arrays) {
  if (e.elements() <= 0) return;
  if ((e.s == 1 ? e.c : e.s) % kWidth == 0 && (detail::aligned<kWidth>(arrays) && ...)) {
    detail::launch_map<kWidth>(e, f, arrays...);
  } else {
    detail::launch_map<1>(e, f, arrays...);
  }
  check_launch(kernel);
}

/// The array itself as what channel_sums adds.
template <typename T>
struct Element {
  const T* x;
  __device__ T operator()(std::int64_t at, std::int64_t /*sample*/,
                          std::int64_t /*channel*/) const {
    return x[at];
  }
};

}  // namespace rematch::cuda
