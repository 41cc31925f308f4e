#include "engine/cuda/batch_norm.h"

#include <limits>

#include "engine/cuda/reduce.h"
#include "engine/math/normalise.h"
#include "engine/math/pointwise.h"

namespace rematch::cuda {

namespace {

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

__device__ void store_partial(double* partial, std::int64_t /*stride*/, std::int64_t at,
                              double sum) {
  partial[at] = sum;
}
__device__ void store_partial(double* partial, std::int64_t stride, std::int64_t at,
                              const Two<double>& sum) {
  partial[at] = sum.a;
  partial[stride + at] = sum.b;
}

/// The sums of value(element, channel) over each block of LaneSum, a half-warp a block; s > 1.
template <typename V, typename Value>
__global__ void __launch_bounds__(kThreads)
    plane_sums_kernel(Extents e, Value value, double* partial) {
  const std::int64_t blocks = e.partials();
  const std::int64_t step = global_threads() / kHalfWarp;
  for (std::int64_t id = global_thread() / kHalfWarp; id < e.c * blocks; id += step) {
    const std::int64_t channel = id / blocks;
    const V lane =
        math::lane_of_block<V>(e.count(), e.s, id - channel * blocks, threadIdx.x % kHalfWarp,
                               [=](std::int64_t image, std::int64_t i) {
                                 return value((image * e.c + channel) * e.s + i, channel);
                               });
    const V sum = detail::tree_sum(lane);
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
    const std::int64_t chunk = id / e.c;
    const std::int64_t channel = id - chunk * e.c;
    const std::int64_t first = chunk * math::kChunkRows;
    const std::int64_t last = first + math::kChunkRows < e.n ? first + math::kChunkRows : e.n;
    Wide<V> sum{};
    REMATCH_UNROLL
    for (std::int64_t i = first; i < last; ++i) {
      sum += WideOf<V>::from(value(i * e.c + channel, channel));
    }
    store_partial(partial, e.c * chunks, channel * chunks + chunk, sum);
  }
}

/// finish(k * c + channel, total) of the k-th component of V's sums over each channel.
template <typename V, int kSums, typename Value, typename Finish>
void channel_sums(std::string_view kernel, const Extents& e, const Value& value, double* partial,
                  const Finish& finish) {
  const std::int64_t count = e.partials();
  if (e.elements() > 0) {
    if (e.s == 1) {
      row_sums_kernel<V><<<grid_for(e.c * count), kThreads, 0, stream()>>>(e, value, partial);
    } else {
      plane_sums_kernel<V><<<grid_for(e.c * count, kThreads / kHalfWarp), kThreads, 0, stream()>>>(
          e, value, partial);
    }
    check_launch(kernel);
  }
  totals(kernel, kSums * e.c, count, partial, finish);
}

/// f(channel, element of each array by reference) on packs that lie in one plane (s > 1) or on
/// neighbouring channels (s = 1).
template <int kWidth, typename Index, typename F, typename... Arrays>
__global__ void __launch_bounds__(kThreads)
    channel_map_kernel(std::int64_t packs, Index c, Index s, F f, Arrays... arrays) {
  for (std::int64_t p = global_thread(); p < packs; p += global_threads()) {
    const Index first = static_cast<Index>(p) * kWidth;
    const Index channel = (s == 1 ? first : first / s) % c;
    detail::visit_loaded<kWidth>(f, p, static_cast<std::int64_t>(channel), s == 1 ? 1 : 0,
                                 detail::loaded<kWidth>(arrays, p)...);
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

template <int kWidth, typename F, typename... Arrays>
void channel_map(std::string_view kernel, const Extents& e, const F& f, Arrays... arrays) {
  if (e.elements() <= 0) return;
  if ((e.s == 1 ? e.c : e.s) % kWidth == 0 && (detail::aligned<kWidth>(arrays) && ...)) {
    launch_map<kWidth>(e, f, arrays...);
  } else {
    launch_map<1>(e, f, arrays...);
  }
  check_launch(kernel);
}

template <typename T>
struct Element {
  const T* x;
  __device__ T operator()(std::int64_t at, std::int64_t /*channel*/) const { return x[at]; }
};

template <typename T>
struct SquaredDeviation {
  const T* x;
  const T* mean;
  __device__ T operator()(std::int64_t at, std::int64_t channel) const {
    return math::squared_difference(x[at], mean[channel]);
  }
};

template <typename T>
struct GradientTerms {
  const T* gy;
  const T* x;
  const T* mean;
  __device__ Two<T> operator()(std::int64_t at, std::int64_t channel) const {
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
  constexpr std::string_view kName = "batch_norm_backward";
  if (gw == nullptr && gb == nullptr && !train) {
    if (gx == nullptr) return;
    channel_map<kVector<T>>(kName, e, ScaledGradient<T>{invstd, w}, In<T>{gy}, Out<T>{gx});
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

#define REMATCH_INSTANTIATE(T)                                                                    \
  template void batch_norm_train(std::int64_t, std::int64_t, std::int64_t, const T*, const T*,    \
                                 const T*, T, T*, T*, T*, T*, T*, T);                             \
  template void batch_norm_eval(std::int64_t, std::int64_t, std::int64_t, const T*, const T*,     \
                                const T*, const T*, const T*, T, T*, T*, T*);                     \
  template void batch_norm_backward(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, \
                                    const T*, const T*, const T*, bool, T*, T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cuda
