#include "engine/kernels/attention.h"

#include <algorithm>

#include "engine/cuda/kernels/reduce.h"
#include "engine/cuda/runtime/launch.h"
#include "engine/kernels/random.h"
#include "engine/random/draw.h"

namespace rematch::cuda {

namespace {

using math::AttentionShape;
using math::AttentionState;

/// Where a score lies among the heads.
struct Pair {
  std::int64_t b;
  std::int64_t h;
  std::int64_t i;
  std::int64_t j;
};
__device__ Pair pair_of(const AttentionShape& s, std::int64_t score) {
  const std::int64_t row = math::quotient(score, s.keys);
  const std::int64_t head = math::quotient(row, s.queries);
  const std::int64_t b = math::quotient(head, s.heads);
  return {b, head - b * s.heads, row - head * s.queries, score - row * s.keys};
}

/// Use of a product of a query with a key or a value.
enum class Pairs : std::uint8_t {
  scores,
  probabilities,  ///< Again, from the log-sum-exps of their rows.
  gradients,      ///< The probabilities': products of gy with values, where the mask kept them.
};

/// A thread a pair.
template <Pairs kPairs, typename T>
__global__ void __launch_bounds__(kThreads)
    pair_kernel(AttentionShape s, T factor, const T* a, const T* memory, const T* logs,
                const std::uint8_t* mask, T* out) {
  for (std::int64_t n = global_thread(); n < s.scores(); n += global_threads()) {
    const Pair p = pair_of(s, n);
    const T* x = a + s.query_at(p.b, p.i, p.h);
    const T* m = memory + s.key_at(p.b, p.j, p.h);
    if constexpr (kPairs == Pairs::gradients) m += s.to_value();
    T sum = 0;
    for (std::int64_t c = 0; c < s.size; ++c) sum = std::fma(x[c], m[c], sum);
    if constexpr (kPairs == Pairs::gradients) {
      out[n] = mask == nullptr ? sum : math::dropout(sum, factor, mask[n] != 0);
    } else {
      const T score = math::attention_score(s.sees(p.i, p.j), sum, factor);
      out[n] = kPairs == Pairs::scores ? score : math::exp(score - logs[math::quotient(n, s.keys)]);
    }
  }
}

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    softmax_kernel(std::int64_t rows, std::int64_t keys, T* scores, T* logs) {
  for_each_row<Row>(rows, [=](std::int64_t r) {
    T* row = scores + r * keys;
    const T top = Row::max(keys, row);
    const T total = static_cast<T>(Row::template sum<T>(keys, [=](std::int64_t j) {
      const T e = math::exp(row[j] - top);
      row[j] = e;
      return e;
    }));
    Row::each(keys, [=](std::int64_t j) { row[j] /= total; });
    if (logs != nullptr)
      Row::each(1, [=](std::int64_t) { logs[r] = math::log_sum_exp(top, total); });
  });
}

/// A thread a feature of a query: the sum over keys of pair by key, or by value.
template <bool kValues, typename T>
__global__ void __launch_bounds__(kThreads)
    over_keys_kernel(AttentionShape s, const T* pairs, const T* memory, T* out) {
  const std::int64_t n = s.rows() * s.size;
  for (std::int64_t e = global_thread(); e < n; e += global_threads()) {
    const std::int64_t row = math::quotient(e, s.size);
    const std::int64_t c = e - row * s.size;
    const Pair p = pair_of(s, row * s.keys);
    const T* m = memory + s.key_at(p.b, 0, p.h) + (kValues ? s.to_value() : 0) + c;
    T sum = 0;
    const std::int64_t keys = s.keys_of(p.i);
    for (std::int64_t j = 0; j < keys; ++j) {
      sum = std::fma(pairs[row * s.keys + j], m[j * s.memory_width()], sum);
    }
    out[s.query_at(p.b, p.i, p.h) + c] = sum;
  }
}

/// A thread a feature of a key and of its value: the sums over the heads that they serve, and over
/// their queries, of score gradient by query and of kept probability by gy.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    over_queries_kernel(AttentionShape s, const T* gradients, const T* q, const T* kept,
                        const T* gy, T* out) {
  const std::int64_t half = s.to_value();
  const std::int64_t n = s.batch * s.keys * half;
  const std::int64_t group = s.heads / s.memory_heads;
  for (std::int64_t e = global_thread(); e < n; e += global_threads()) {
    const std::int64_t place = math::quotient(e, half);
    const std::int64_t feature = e - place * half;
    const std::int64_t b = math::quotient(place, s.keys);
    const std::int64_t j = place - b * s.keys;
    const std::int64_t memory_head = math::quotient(feature, s.size);
    const std::int64_t c = feature - memory_head * s.size;
    T key = 0;
    T value = 0;
    for (std::int64_t h = memory_head * group; h < (memory_head + 1) * group; ++h) {
      const std::int64_t pair = (b * s.heads + h) * s.queries * s.keys + j;
      const std::int64_t x = s.query_at(b, 0, h) + c;
#pragma unroll 4
      for (std::int64_t i = s.first_query_of(j); i < s.queries; ++i) {
        key = std::fma(gradients[pair + i * s.keys], q[x + i * s.width()], key);
        value = std::fma(kept[pair + i * s.keys], gy[x + i * s.width()], value);
      }
    }
    out[place * s.memory_width() + feature] = key;
    out[place * s.memory_width() + half + feature] = value;
  }
}

/// Turns gradients of probabilities into those of products. `y` is null unless the sum of gradient
/// by probability is that of gy by y.
template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    score_gradient_kernel(AttentionShape s, T scale, const T* probabilities, const T* gy,
                          const T* y, T* gradients) {
  for_each_row<Row>(s.rows(), [=](std::int64_t r) {
    const T* p = probabilities + r * s.keys;
    T* g = gradients + r * s.keys;
    double total = 0;
    if (y != nullptr) {
      const Pair at = pair_of(s, r * s.keys);
      const std::int64_t first = s.query_at(at.b, at.i, at.h);
      total = Row::template sum<T>(s.size,
                                   [=](std::int64_t c) { return gy[first + c] * y[first + c]; });
    } else {
      const std::int64_t keys = s.keys_of(r - math::quotient(r, s.queries) * s.queries);
      total = Row::template sum<T>(keys, [=](std::int64_t j) { return g[j] * p[j]; });
    }
    const T dot = static_cast<T>(total);
    Row::each(s.keys, [=](std::int64_t j) {
      g[j] = math::attention_score_gradient(g[j], p[j], dot, scale);
    });
  });
}

/// Arrays for all scores, one after the other, in the workspace.
template <typename T>
struct Room {
  T* probabilities = nullptr;
  T* kept = nullptr;
  T* gradients = nullptr;
  std::uint8_t* mask = nullptr;

  explicit Room(std::int64_t scores) {
    const auto n = static_cast<std::size_t>(scores + 3) / 4 * 4;
    probabilities = static_cast<T*>(workspace(n * (3 * sizeof(T) + 1)));
    kept = probabilities + n;
    gradients = kept + n;
    mask = reinterpret_cast<std::uint8_t*>(gradients + n);
  }
};

template <Pairs kPairs, typename T>
void pair_products(const AttentionShape& s, T factor, const T* a, const T* memory, const T* logs,
                   const std::uint8_t* mask, T* out) {
  pair_kernel<kPairs>
      <<<grid_for(s.scores()), kThreads, 0, stream()>>>(s, factor, a, memory, logs, mask, out);
  check_launch("attention_pairs");
}

template <typename T>
void softmax_rows(const AttentionShape& s, T* scores, T* logs) {
  with_row(s.rows(), s.keys, [=](auto row, unsigned blocks, int threads) {
    softmax_kernel<decltype(row)><<<blocks, threads, 0, stream()>>>(s.rows(), s.keys, scores, logs);
  });
  check_launch("attention_softmax");
}

/// Draws the mask, and what it leaves of the probabilities.
template <typename T>
void drop(const AttentionShape& s, const AttentionDropout& d, const T* probabilities,
          std::uint8_t* mask, T* kept) {
  const Generator& g = d.generator;
  dropout_forward<T>(s.scores(), probabilities, d.p, g.seed, g.stream, g.offset, mask, kept);
}

template <bool kValues, typename T>
void sum_over_keys(const AttentionShape& s, const T* pairs, const T* memory, T* out) {
  over_keys_kernel<kValues>
      <<<grid_for(s.rows() * s.size), kThreads, 0, stream()>>>(s, pairs, memory, out);
  check_launch("attention_over_keys");
}

template <typename T>
void sum_over_queries(const AttentionShape& s, const T* gradients, const T* q, const T* kept,
                      const T* gy, T* out) {
  over_queries_kernel<<<grid_for(s.batch * s.keys * s.to_value()), kThreads, 0, stream()>>>(
      s, gradients, q, kept, gy, out);
  check_launch("attention_over_queries");
}

template <typename T>
void to_score_gradients(const AttentionShape& s, const T* probabilities, const T* gy, const T* y,
                        T* gradients) {
  with_row(s.rows(), std::max(s.keys, s.size), [=](auto row, unsigned blocks, int threads) {
    score_gradient_kernel<decltype(row)>
        <<<blocks, threads, 0, stream()>>>(s, s.scale<T>(), probabilities, gy, y, gradients);
  });
  check_launch("attention_score_gradients");
}

}  // namespace

template <typename T>
void attention_forward(const AttentionShape& s, const T* q, const T* memory,
                       const AttentionDropout& dropout, const AttentionState<T>& state, T* y) {
  const Room<T> room(s.scores());
  T* probabilities = state.probabilities != nullptr ? state.probabilities : room.probabilities;
  pair_products<Pairs::scores, T>(s, s.scale<T>(), q, memory, nullptr, nullptr, probabilities);
  softmax_rows(s, probabilities, state.logs);
  if (dropout.p > 0) {
    drop(s, dropout, probabilities, state.mask != nullptr ? state.mask : room.mask, room.kept);
    probabilities = room.kept;
  }
  sum_over_keys<true>(s, probabilities, memory, y);
}

template <typename T>
void attention_backward(const AttentionShape& s, const T* gy, const T* q, const T* memory,
                        const T* y, const AttentionDropout& dropout, const AttentionState<T>& state,
                        T* gq, T* gmemory) {
  const Room<T> room(s.scores());
  const T* probabilities = state.probabilities;
  if (probabilities == nullptr) {
    pair_products<Pairs::probabilities, T>(s, s.scale<T>(), q, memory, state.logs, nullptr,
                                           room.probabilities);
    probabilities = room.probabilities;
  }
  const T* kept = probabilities;
  const std::uint8_t* mask = dropout.p > 0 ? state.mask : nullptr;
  if (mask != nullptr) {
    dropout_backward<T>(s.scores(), probabilities, mask, dropout.p, room.kept);
    kept = room.kept;
  } else if (dropout.p > 0) {
    drop(s, dropout, probabilities, room.mask, room.kept);
    kept = room.kept;
    mask = room.mask;
  }
  pair_products<Pairs::gradients, T>(s, math::dropout_factor<T>(dropout.p), gy, memory, nullptr,
                                     mask, room.gradients);
  to_score_gradients(s, probabilities, gy, state.logs != nullptr ? y : nullptr, room.gradients);
  const T* const gradients = room.gradients;
  if (gq != nullptr) sum_over_keys<false>(s, gradients, memory, gq);
  if (gmemory != nullptr) sum_over_queries(s, gradients, q, kept, gy, gmemory);
}

REMATCH_ATTENTION_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
