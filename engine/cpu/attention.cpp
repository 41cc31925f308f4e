#include "engine/kernels/attention.h"

#include <algorithm>

#include "engine/cpu/product.h"
#include "engine/cpu/reduce.h"
#include "engine/cpu/row_max.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/threads.h"
#include "engine/kernels/random.h"

namespace rematch::cpu {

namespace {

using math::AttentionShape;
using math::AttentionState;

/// Scores that are worked on at a time, of one head.
constexpr std::int64_t kScores = 1 << 17;

/// A row may have more.
std::int64_t block_scores(const AttentionShape& s) { return std::max(kScores, s.keys); }

/// Some rows of scores of one head, and where the head's features begin.
struct Block {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t query;  ///< The first row's.
  std::int64_t key;    ///< Key 0's.
  std::int64_t row;    ///< The first one's number among all rows of scores.
};

/// Calls work(block) for all blocks of a head, in order.
template <class Work>
void for_each_block(const AttentionShape& s, std::int64_t b, std::int64_t h, const Work& work) {
  const std::int64_t most = std::max<std::int64_t>(1, kScores / s.keys);
  for (std::int64_t first = 0; first < s.queries; first += most) {
    const std::int64_t rows = std::min(most, s.queries - first);
    work(Block{first, rows, s.query_at(b, first, h), s.key_at(b, 0, h),
               (b * s.heads + h) * s.queries + first});
  }
}

/// out[rows, keys] = a row's features by those of each key or value.
template <typename T>
void pair_products(const AttentionShape& s, const Block& at, const T* a, const T* keys, T* out) {
  product<T>(at.rows, s.keys, s.size, {a + at.query, s.width(), 1}, {keys, 1, s.memory_width()},
             false, out, s.keys);
}

/// work(r, scores) for each row r of the block, on threads().
template <typename T, class Work>
void for_each_row(const AttentionShape& s, const Block& at, T* scores, const Work& work) {
  parallel(at.rows, kGrain / s.keys + 1, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) work(r, scores + r * s.keys);
  });
}

template <typename T>
void to_scores(const AttentionShape& s, std::int64_t query, T* row) {
  const T scale = s.scale<T>();
  for (std::int64_t j = 0; j < s.keys; ++j) {
    row[j] = math::attention_score(s.sees(query, j), row[j], scale);
  }
}

template <typename T>
void softmax_rows(const AttentionShape& s, const Block& at, T* logs, T* scores) {
  for_each_row(s, at, scores, [&](std::int64_t r, T* row) {
    to_scores(s, at.first + r, row);
    const T top = row_max(s.keys, row);
    for (std::int64_t j = 0; j < s.keys; ++j) row[j] = math::exp(row[j] - top);
    const T total = static_cast<T>(lane_sum<T>(s.keys, [=](std::int64_t j) { return row[j]; }));
    for (std::int64_t j = 0; j < s.keys; ++j) row[j] /= total;
    if (logs != nullptr) logs[at.row + r] = math::log_sum_exp(top, total);
  });
}

/// The probabilities of a block again, from the log-sum-exps of its rows.
template <typename T>
void exponentials(const AttentionShape& s, const Block& at, const T* logs, T* scores) {
  for_each_row(s, at, scores, [&](std::int64_t r, T* row) {
    to_scores(s, at.first + r, row);
    const T log = logs[at.row + r];
    for (std::int64_t j = 0; j < s.keys; ++j) row[j] = math::exp(row[j] - log);
  });
}

/// Draws the mask of a block, and returns what it leaves of the probabilities.
template <typename T>
T* drop(const AttentionShape& s, const Block& at, const AttentionDropout& d, const T* probabilities,
        std::uint8_t* mask) {
  T* const kept = scratch<T, 4>(block_scores(s));
  const Generator& g = d.generator;
  dropout_forward<T>(at.rows * s.keys, probabilities, d.p, g.seed, g.stream,
                     g.offset + static_cast<std::uint64_t>(at.row * s.keys), mask, kept);
  return kept;
}

std::uint8_t* mask_scratch(const AttentionShape& s) {
  return scratch<std::uint8_t, 6>(block_scores(s));
}

}  // namespace

template <typename T>
void attention_forward(const AttentionShape& s, const T* q, const T* memory,
                       const AttentionDropout& dropout, const AttentionState<T>& state, T* y) {
  for (std::int64_t bh = 0; bh < s.batch * s.heads; ++bh) {
    for_each_block(s, bh / s.heads, bh % s.heads, [&](const Block& at) {
      const std::int64_t first = at.row * s.keys;
      T* probabilities = state.probabilities != nullptr ? state.probabilities + first
                                                        : scratch<T, 3>(block_scores(s));
      pair_products(s, at, q, memory + at.key, probabilities);
      softmax_rows(s, at, state.logs, probabilities);
      if (dropout.p > 0) {
        std::uint8_t* mask = state.mask != nullptr ? state.mask + first : mask_scratch(s);
        probabilities = drop(s, at, dropout, probabilities, mask);
      }
      product<T>(at.rows, s.size, s.keys, {probabilities, s.keys, 1},
                 {memory + at.key + s.to_value(), s.memory_width(), 1}, false, y + at.query,
                 s.width());
    });
  }
}

namespace {

/// The backward of one block: `resume` says that earlier blocks have begun the sums of its keys.
template <typename T>
struct BlockBackward {
  const AttentionShape& s;
  const AttentionDropout& dropout;
  const AttentionState<T>& state;
  const T* gy;
  const T* q;
  const T* memory;
  const T* y;
  T* gq;
  T* gmemory;

  void run(const Block& at, bool resume) const {
    const std::int64_t first = at.row * s.keys;
    const T* probabilities = find_probabilities(at);
    const T* kept = probabilities;
    const std::uint8_t* mask = state.mask != nullptr ? state.mask + first : nullptr;
    if (dropout.p > 0 && mask != nullptr) {
      T* const again = scratch<T, 4>(block_scores(s));
      dropout_backward<T>(at.rows * s.keys, probabilities, mask, dropout.p, again);
      kept = again;
    } else if (dropout.p > 0) {
      std::uint8_t* const redrawn = mask_scratch(s);
      kept = drop(s, at, dropout, probabilities, redrawn);
      mask = redrawn;
    }
    if (gmemory != nullptr) {
      sum_over_queries(at, kept, gy, resume, gmemory + at.key + s.to_value());
    }
    T* const gradient = scratch<T, 5>(block_scores(s));
    pair_products(s, at, gy, memory + at.key + s.to_value(), gradient);
    if (dropout.p > 0) {
      dropout_backward<T>(at.rows * s.keys, gradient, mask, dropout.p, gradient);
    }
    for_each_row(s, at, gradient, [&](std::int64_t r, T* row) {
      differentiate_row(at, r, probabilities + r * s.keys, row);
    });
    if (gq != nullptr) {
      product<T>(at.rows, s.size, s.keys, {gradient, s.keys, 1},
                 {memory + at.key, s.memory_width(), 1}, false, gq + at.query, s.width());
    }
    if (gmemory != nullptr) sum_over_queries(at, gradient, q, resume, gmemory + at.key);
  }

 private:
  const T* find_probabilities(const Block& at) const {
    if (state.probabilities != nullptr) return state.probabilities + at.row * s.keys;
    T* const again = scratch<T, 3>(block_scores(s));
    pair_products(s, at, q, memory + at.key, again);
    exponentials(s, at, static_cast<const T*>(state.logs), again);
    return again;
  }

  void differentiate_row(const Block& at, std::int64_t r, const T* probabilities, T* row) const {
    const std::int64_t query = at.query + r * s.width();
    const T dot = static_cast<T>(
        state.logs != nullptr
            ? lane_sum<T>(s.size, [&](std::int64_t c) { return gy[query + c] * y[query + c]; })
            : lane_sum<T>(s.keys, [&](std::int64_t j) { return row[j] * probabilities[j]; }));
    const T scale = s.scale<T>();
    for (std::int64_t j = 0; j < s.keys; ++j) {
      row[j] = math::attention_score_gradient(row[j], probabilities[j], dot, scale);
    }
  }

  void sum_over_queries(const Block& at, const T* pairs, const T* features, bool resume,
                        T* out) const {
    product<T>(s.keys, s.size, at.rows, {pairs, 1, s.keys}, {features + at.query, s.width(), 1},
               resume, out, s.memory_width());
  }
};

}  // namespace

template <typename T>
void attention_backward(const AttentionShape& s, const T* gy, const T* q, const T* memory,
                        const T* y, const AttentionDropout& dropout, const AttentionState<T>& state,
                        T* gq, T* gmemory) {
  const BlockBackward<T> backward{s, dropout, state, gy, q, memory, y, gq, gmemory};
  const std::int64_t group = s.heads / s.memory_heads;
  for (std::int64_t bh = 0; bh < s.batch * s.heads; ++bh) {
    const std::int64_t h = bh % s.heads;
    for_each_block(s, bh / s.heads, h,
                   [&](const Block& at) { backward.run(at, at.first > 0 || h % group > 0); });
  }
}

REMATCH_ATTENTION_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
