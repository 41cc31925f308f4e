#include "engine/kernels/random.h"

#include "engine/cuda/runtime/launch.h"
#include "engine/random/draw.h"
#include "engine/random/philox.h"

namespace rematch::cuda {

namespace {

/// Elements that one thread draws for; even, so that normal pairs stay together.
constexpr int kGroup = 4;

/// Where a draw begins: at a word that is known now, and for a captured step what its stream has
/// come further by the time of the run. Streams advance by multiples of 4 words, so the sum is
/// aligned to a Philox block exactly when the offset is.
struct Start {
  std::uint64_t offset;
  const std::uint64_t* advance;
  __device__ std::uint64_t word() const { return advance == nullptr ? offset : offset + *advance; }
};

Start start(std::uint64_t subsequence, std::uint64_t offset) {
  return {offset, draw_advance(subsequence)};
}

/// Hands out the words of a group of elements.
struct Words {
  PhiloxStream stream;
  Start start;
  using Value = std::uint32_t;
  __device__ void group(std::int64_t g, Value* out) const {
    math::group_words(stream, start.word(), static_cast<std::uint64_t>(g), out);
  }
};

/// Hands out the standard normals of a group of elements.
struct Normals {
  PhiloxStream stream;
  Start start;
  using Value = double;
  __device__ void group(std::int64_t g, Value* out) const {
    std::uint32_t words[kGroup] = {};
    math::group_words(stream, start.word(), static_cast<std::uint64_t>(g), words);
#pragma unroll
    for (int k = 0; k < kGroup; k += 2) {
      const math::CosSin pair = math::normal_pair(words[k], words[k + 1]);
      out[k] = pair.cos;
      out[k + 1] = pair.sin;
    }
  }
};

/// Gives f the k-th drawn value with the k-th element of each array.
template <typename F, typename Value>
struct WithDrawn {
  const F& f;
  const Value* drawn;
  template <typename... Elements>
  __device__ void operator()(int k, Elements&... elements) const {
    f(drawn[k], elements...);
  }
};

template <bool kAligned, typename Source, typename F, typename... Arrays>
__global__ void __launch_bounds__(kThreads)
    draw_kernel(std::int64_t n, Source source, F f, Arrays... arrays) {
  const std::int64_t groups = math::ceil_div(n, kGroup);
  for (std::int64_t g = global_thread(); g < groups; g += global_threads()) {
    typename Source::Value drawn[kGroup] = {};
    source.group(g, drawn);
    const WithDrawn<F, typename Source::Value> use{f, drawn};
    if (kAligned && g * kGroup + kGroup <= n) {
      detail::visit_loaded<kGroup>(use, g, 0, 1, detail::loaded<kGroup>(arrays, g)...);
      continue;
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      const std::int64_t i = g * kGroup + k;
      if (i < n) detail::visit_loaded<1>(use, i, k, 1, detail::loaded<1>(arrays, i)...);
    }
  }
}

/// Runs f(drawn value i, element i of each array by reference) for i in [0, n).
template <typename Source, typename F, typename... Arrays>
void draw(const char* kernel, std::int64_t n, const Source& source, const F& f, Arrays... arrays) {
  if (n <= 0) return;
  const unsigned blocks = grid_for(math::ceil_div(n, kGroup));
  if ((detail::aligned<kGroup>(arrays) && ...)) {
    draw_kernel<true><<<blocks, kThreads, 0, stream()>>>(n, source, f, arrays...);
  } else {
    draw_kernel<false><<<blocks, kThreads, 0, stream()>>>(n, source, f, arrays...);
  }
  check_launch(kernel);
}

template <typename T>
struct Dropout {
  T factor;
  std::uint64_t threshold;
  __device__ void operator()(std::uint32_t word, T x, std::uint8_t& mask, T& y) const {
    const bool kept = word < threshold;
    mask = kept ? 1 : 0;
    y = math::dropout(x, factor, kept);
  }
};

template <typename T>
struct DropoutGradient {
  T factor;
  __device__ void operator()(std::int64_t /*i*/, T gy, std::uint8_t mask, T& gx) const {
    gx = math::dropout(gy, factor, mask != 0);
  }
};

template <typename T>
struct DropoutFactor {
  T factor;
  std::uint64_t threshold;
  __device__ void operator()(std::uint32_t word, T& out) const {
    out = word < threshold ? factor : T(0);
  }
};

template <typename T>
struct Rrelu {
  T lower;
  T span;
  __device__ void operator()(std::uint32_t word, T x, T& noise, T& y) const {
    noise = math::rrelu_noise(x, lower, span, word);
    y = x * noise;
  }
};

struct Multiply {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T a, T b, T& out) const {
    out = a * b;
  }
};

template <typename T>
struct Noise {
  T sigma;
  __device__ void operator()(double z, T x, T& y) const { y = math::normal_around(x, sigma, z); }
};

template <typename T>
struct Normal {
  T mean;
  T stddev;
  __device__ void operator()(double z, T& out) const { out = math::normal_around(mean, stddev, z); }
};

template <typename T>
struct Uniform {
  T lo;
  T span;
  __device__ void operator()(std::uint32_t word, T& out) const {
    out = math::uniform_between(lo, span, word);
  }
};

}  // namespace

template <typename T>
void dropout_forward(std::int64_t n, const T* x, double p, std::uint64_t seed,
                     std::uint64_t subsequence, std::uint64_t offset, std::uint8_t* mask, T* y) {
  draw("dropout_forward", n, Words{{seed, subsequence}, start(subsequence, offset)},
       Dropout<T>{math::dropout_factor<T>(p), keep_threshold(p)}, In<T>{x}, Out<std::uint8_t>{mask},
       Out<T>{y});
}

template <typename T>
void dropout_backward(std::int64_t n, const T* gy, const std::uint8_t* mask, double p, T* gx) {
  visit<kVector<T>>("dropout_backward", n, DropoutGradient<T>{math::dropout_factor<T>(p)},
                    In<T>{gy}, In<std::uint8_t>{mask}, Out<T>{gx});
}

template <typename T>
void dropout_factors(std::int64_t n, double p, std::uint64_t seed, std::uint64_t subsequence,
                     std::uint64_t offset, T* factors) {
  draw("dropout_factors", n, Words{{seed, subsequence}, start(subsequence, offset)},
       DropoutFactor<T>{math::dropout_factor<T>(p), keep_threshold(p)}, Out<T>{factors});
}

template <typename T>
void rrelu_forward(std::int64_t n, const T* x, T lower, T upper, std::uint64_t seed,
                   std::uint64_t subsequence, std::uint64_t offset, T* noise, T* y) {
  draw("rrelu_forward", n, Words{{seed, subsequence}, start(subsequence, offset)},
       Rrelu<T>{lower, upper - lower}, In<T>{x}, Out<T>{noise}, Out<T>{y});
}

template <typename T>
void multiply(std::int64_t n, const T* a, const T* b, T* out) {
  visit<kVector<T>>("multiply", n, Multiply{}, In<T>{a}, In<T>{b}, Out<T>{out});
}

template <typename T>
void gaussian_noise_forward(std::int64_t n, const T* x, T sigma, std::uint64_t seed,
                            std::uint64_t subsequence, std::uint64_t offset, T* y) {
  draw("gaussian_noise_forward", n, Normals{{seed, subsequence}, start(subsequence, offset)},
       Noise<T>{sigma}, In<T>{x}, Out<T>{y});
}

template <typename T>
void fill_normal(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                 std::uint64_t offset, T mean, T stddev, T* out) {
  draw("fill_normal", n, Normals{{seed, subsequence}, start(subsequence, offset)},
       Normal<T>{mean, stddev}, Out<T>{out});
}

template <typename T>
void fill_uniform(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                  std::uint64_t offset, T lo, T hi, T* out) {
  draw("fill_uniform", n, Words{{seed, subsequence}, start(subsequence, offset)},
       Uniform<T>{lo, hi - lo}, Out<T>{out});
}

REMATCH_RANDOM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
