#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <limits>

#include "engine/cpu/reduce.h"
#include "engine/cpu/row_max.h"
#include "engine/cpu/testing/values.h"
#include "engine/cpu/testing/vectors.h"
#include "engine/cpu/threads.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/random.h"

namespace rematch::cpu {
namespace {

using math::AttentionShape;
using math::AttentionState;
using namespace testing;

template <typename T>
struct AttentionResults {
  std::vector<T> kept;
  std::vector<std::uint8_t> mask;
  std::vector<T> y;
  std::vector<T> gq;
  std::vector<T> gmemory;
};

template <typename T>
struct AttentionCase {
  AttentionShape s;
  AttentionDropout dropout;
  bool fused;
  std::vector<T> q = values<T>(s.batch * s.queries * s.width(), 1);
  std::vector<T> memory = values<T>(s.batch * s.keys * s.memory_width(), 2);
  std::vector<T> gy = values<T>(s.batch * s.queries * s.width(), 3);

  [[nodiscard]] AttentionResults<T> empty() const {
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    return {std::vector<T>(size(fused ? s.rows() : s.scores()), T(7)),
            std::vector<std::uint8_t>(size(s.scores())), std::vector<T>(q.size(), T(7)),
            std::vector<T>(q.size(), T(7)), std::vector<T>(memory.size(), T(7))};
  }
  [[nodiscard]] AttentionResults<T> computed() const {
    AttentionResults<T> r = empty();
    const AttentionState<T> state{fused ? nullptr : r.kept.data(),
                                  fused || dropout.p == 0 ? nullptr : r.mask.data(),
                                  fused ? r.kept.data() : nullptr};
    attention_forward<T>(s, q.data(), memory.data(), dropout, state, r.y.data());
    attention_backward<T>(s, gy.data(), q.data(), memory.data(), r.y.data(), dropout, state,
                          r.gq.data(), r.gmemory.data());
    return r;
  }
  /// The contract, an element at a time.
  [[nodiscard]] AttentionResults<T> by_element() const;
};

template <typename T>
AttentionResults<T> AttentionCase<T>::by_element() const {
  AttentionResults<T> r = empty();
  const T scale = s.template scale<T>();
  const auto n = static_cast<std::size_t>(s.scores());
  std::vector<T> p(n);
  std::vector<T> again(n);
  std::vector<T> g(n);
  const std::int64_t group = s.heads / s.memory_heads;
  const auto for_each_row = [&](auto&& work) {
    for (std::int64_t row = 0; row < s.rows(); ++row) {
      const std::int64_t i = row % s.queries;
      const std::int64_t h = row / s.queries % s.heads;
      const std::int64_t b = row / s.queries / s.heads;
      work(row, b, h, i, s.query_at(b, i, h));
    }
  };
  const auto chain = [&](const T* x, const T* m) {
    T sum = 0;
    for (std::int64_t c = 0; c < s.size; ++c) sum = std::fma(x[c], m[c], sum);
    return sum;
  };
  const auto over_keys = [&](const T* pairs, std::int64_t i, const T* features, T* out) {
    for (std::int64_t c = 0; c < s.size; ++c) {
      T sum = 0;
      for (std::int64_t j = 0; j < s.keys_of(i); ++j) {
        sum = std::fma(pairs[j], features[j * s.memory_width() + c], sum);
      }
      out[c] = sum;
    }
  };
  for_each_row(
      [&](std::int64_t row, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
        T* const scores = p.data() + row * s.keys;
        const std::int64_t keys = s.keys_of(i);
        for (std::int64_t j = 0; j < keys; ++j) {
          const T product = chain(q.data() + at, memory.data() + s.key_at(b, j, h));
          scores[j] = math::attention_score(s.sees(i, j), product, scale);
        }
        const T top = row_max(keys, scores);
        std::vector<T> e(static_cast<std::size_t>(keys));
        for (std::int64_t j = 0; j < keys; ++j)
          e[static_cast<std::size_t>(j)] = math::exp(scores[j] - top);
        const T total = static_cast<T>(
            lane_sum<T>(keys, [&](std::int64_t j) { return e[static_cast<std::size_t>(j)]; }));
        const T log = math::log_sum_exp(top, total);
        if (fused) r.kept[static_cast<std::size_t>(row)] = log;
        for (std::int64_t j = 0; j < keys; ++j) {
          const auto k = static_cast<std::size_t>(row * s.keys + j);
          again[k] = fused ? math::exp(scores[j] - log) : e[static_cast<std::size_t>(j)] / total;
          scores[j] = e[static_cast<std::size_t>(j)] / total;
        }
      });
  if (!fused) r.kept = p;
  std::vector<T> kept = p;
  std::vector<std::uint8_t> mask(n, 1);
  if (dropout.p > 0) {
    const Generator& d = dropout.generator;
    dropout_forward<T>(s.scores(), p.data(), dropout.p, d.seed, d.stream, d.offset, mask.data(),
                       kept.data());
    if (!fused) r.mask = mask;
  }
  for_each_row(
      [&](std::int64_t row, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
        over_keys(kept.data() + row * s.keys, i, memory.data() + s.key_at(b, 0, h) + s.to_value(),
                  r.y.data() + at);
      });
  if (dropout.p > 0) {
    dropout_backward<T>(s.scores(), again.data(), mask.data(), dropout.p, kept.data());
  } else {
    kept = again;
  }
  for_each_row([&](std::int64_t row, std::int64_t b, std::int64_t h, std::int64_t i,
                   std::int64_t at) {
    T* const gradients = g.data() + row * s.keys;
    const T* const probabilities = again.data() + row * s.keys;
    const std::int64_t keys = s.keys_of(i);
    for (std::int64_t j = 0; j < keys; ++j) {
      gradients[j] = chain(gy.data() + at, memory.data() + s.key_at(b, j, h) + s.to_value());
    }
    if (dropout.p > 0) {
      dropout_backward<T>(keys, gradients, mask.data() + row * s.keys, dropout.p, gradients);
    }
    const T* const out = r.y.data() + at;
    const T* const g_out = gy.data() + at;
    const T dot = static_cast<T>(
        fused ? lane_sum<T>(s.size, [&](std::int64_t c) { return g_out[c] * out[c]; })
              : lane_sum<T>(keys, [&](std::int64_t j) { return gradients[j] * probabilities[j]; }));
    for (std::int64_t j = 0; j < keys; ++j) {
      gradients[j] = math::attention_score_gradient(gradients[j], probabilities[j], dot, scale);
    }
    over_keys(gradients, i, memory.data() + s.key_at(b, 0, h), r.gq.data() + at);
  });
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t j = 0; j < s.keys; ++j) {
      for (std::int64_t e = 0; e < s.to_value(); ++e) {
        T key = 0;
        T value = 0;
        for (std::int64_t h = e / s.size * group; h < (e / s.size + 1) * group; ++h) {
          for (std::int64_t i = s.first_query_of(j); i < s.queries; ++i) {
            const auto pair =
                static_cast<std::size_t>(((b * s.heads + h) * s.queries + i) * s.keys + j);
            const auto x = static_cast<std::size_t>(s.query_at(b, i, h) + e % s.size);
            key = std::fma(g[pair], q[x], key);
            value = std::fma(kept[pair], gy[x], value);
          }
        }
        const auto at = static_cast<std::size_t>((b * s.keys + j) * s.memory_width() + e);
        r.gmemory[at] = key;
        r.gmemory[at + static_cast<std::size_t>(s.to_value())] = value;
      }
    }
  }
  return r;
}

constexpr AttentionShape kAttentions[] = {
    {},
    {.batch = 2, .queries = 3, .keys = 5, .heads = 4, .memory_heads = 2, .size = 3, .causal = true},
    // Several blocks of queries, the last one short, and tiles and vectors that are not full.
    {.queries = 150, .keys = 150, .heads = 2, .memory_heads = 1, .size = 19, .causal = true},
    {.queries = 70, .keys = 133, .heads = 1, .memory_heads = 1, .size = 8, .causal = true},
    {.batch = 3, .queries = 65, .keys = 41, .heads = 2, .memory_heads = 2, .size = 33},
    // Blocks of fewer rows, for a row has many keys.
    {.queries = 66, .keys = 5000, .heads = 1, .memory_heads = 1, .size = 2, .causal = true}};

TEMPLATE_TEST_CASE("attention is chains and sums over the keys that a block of queries sees", "",
                   float, double) {
  for (const AttentionShape& s : kAttentions) {
    for (const double p : {0.0, 0.4}) {
      for (const bool fused : {false, true}) {
        const AttentionCase<TestType> c{s, {p, {7, 1, 5}}, fused};
        const AttentionResults<TestType> want = c.by_element();
        for (const Vectors v : all_vectors()) {
          for (const int count : {1, 3}) {
            CAPTURE(s.queries, s.keys, s.heads, s.causal, p, fused, to_string(v), count);
            const VectorsScope vectors_scope(v);
            const ThreadsScope threads_scope(count);
            const AttentionResults<TestType> got = c.computed();
            CHECK(same_bits(got.kept, want.kept));
            CHECK(got.mask == want.mask);
            CHECK(same_bits(got.y, want.y));
            CHECK(same_bits(got.gq, want.gq));
            CHECK(same_bits(got.gmemory, want.gmemory));
          }
        }
      }
    }
  }
}

TEST_CASE("a key that no query of a block sees leaves nothing there, not even NaN") {
  AttentionCase<float> c{{.queries = 128, .keys = 128, .size = 4, .causal = true}, {}, true};
  for (std::int64_t i = 100 * c.s.memory_width(); i < 101 * c.s.memory_width(); ++i) {
    c.memory[static_cast<std::size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
  }
  const std::vector<float> y = c.computed().y;
  for (std::int64_t i = 0; i < 64 * c.s.width(); ++i)
    CHECK(!std::isnan(y[static_cast<std::size_t>(i)]));
  CHECK(std::isnan(y[static_cast<std::size_t>(127 * c.s.width())]));
}

}  // namespace
}  // namespace rematch::cpu
