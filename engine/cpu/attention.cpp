#include "engine/kernels/attention.h"

#include <algorithm>

#include "engine/cpu/pack.h"
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

/// Scores that are worked on at a time, of one head, where a row has no more.
constexpr std::int64_t kScores = 1 << 17;

std::int64_t rows_at_a_time(const AttentionShape& s) {
  return std::clamp<std::int64_t>(kScores / s.keys, 1, AttentionShape::kBlock);
}

/// Blocks of a head. None crosses the end of an AttentionShape::kBlock.
std::int64_t blocks(const AttentionShape& s) {
  const std::int64_t most = rows_at_a_time(s);
  const std::int64_t whole = s.queries / AttentionShape::kBlock;
  const std::int64_t rest = s.queries - whole * AttentionShape::kBlock;
  return whole * ((AttentionShape::kBlock + most - 1) / most) + (rest + most - 1) / most;
}

/// Some rows of scores of one head, and where the head's features begin.
struct Block {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t keys;   ///< That sums run over.
  std::int64_t query;  ///< The first row's.
  std::int64_t key;    ///< Key 0's.
  std::int64_t row;    ///< The first one's number among all rows of scores.

  Block(const AttentionShape& s, std::int64_t b, std::int64_t h, std::int64_t n) {
    const std::int64_t most = rows_at_a_time(s);
    const std::int64_t each = (AttentionShape::kBlock + most - 1) / most;
    first = n / each * AttentionShape::kBlock + n % each * most;
    rows = std::min(
        {most, AttentionShape::kBlock - first % AttentionShape::kBlock, s.queries - first});
    keys = s.keys_of(first);
    query = s.query_at(b, first, h);
    key = s.key_at(b, 0, h);
    row = (b * s.heads + h) * s.queries + first;
  }
};

/// The products of one thread's blocks: operands that all blocks of a head share are packed once.
template <typename T>
class Products {
 public:
  Products(const AttentionShape& s, bool whole_rows)
      : s_(s),
        stride_(whole_rows ? s.keys : s.keys + kLine),
        across_keys_((s.keys + kernel_.columns() - 1) / kernel_.columns()),
        columns_(std::min(kernel_.columns(), (s.size + kLine - 1) / kLine * kLine)),
        across_size_((s.size + columns_ - 1) / columns_) {}

  /// Elements from one row of a block's scores to the next.
  [[nodiscard]] std::int64_t stride() const { return stride_; }
  [[nodiscard]] std::int64_t scores() const { return rows_at_a_time(s_) * stride_; }

  /// Operands of pairs(): features of all keys or values.
  template <int kSlot>
  const T* pack_for_pairs(const T* features) const {
    T* const packed = scratch<T, kSlot>(across_keys_ * features_panel());
    pack_columns<T>(s_.size, s_.keys, {features, 1, s_.memory_width()}, kernel_.columns(),
                    features_panel(), packed);
    return packed;
  }
  /// The same of over_keys().
  template <int kSlot>
  const T* pack_for_keys(const T* features) const {
    T* const packed = scratch<T, kSlot>(across_size_ * keys_panel());
    pack_columns<T>(s_.keys, s_.size, {features, s_.memory_width(), 1}, columns_, keys_panel(),
                    packed);
    return packed;
  }

  /// out[rows, keys] = a row's features by those of each key or value.
  void pairs(const Block& at, const T* a, const T* keys, T* out) const {
    T* const rows = scratch<T, 1>(AttentionShape::kBlock * s_.size);
    pack_rows<T>(at.rows, s_.size, {a + at.query, s_.width(), 1}, rows);
    PackedBlock<T> block;
    block.rows = at.rows;
    block.cols = at.keys;
    block.depth = s_.size;
    block.a = rows;
    block.b = keys;
    block.b_panel = features_panel();
    block.c = out;
    block.c_row = stride_;
    kernel_.run_packed(block);
  }

  /// out[rows, size] = sums over keys of a pair by the key's features.
  void over_keys(const Block& at, const T* pairs, const T* features, T* out) const {
    ChainPanel<T> panel;
    panel.rows = at.rows;
    panel.length = at.keys;
    panel.a = pairs;
    panel.a_row = stride_;
    panel.b_row = columns_;
    panel.c_row = s_.width();
    across_features(panel, features, keys_panel(), out + at.query);
  }

  /// Adds to out[keys, size] the sums over the block's queries of a pair by the query's features.
  void add_over_queries(const Block& at, const T* pairs, const T* features, T* out) const {
    const std::int64_t each = AttentionShape::kBlock * columns_;
    T* const packed = scratch<T, 0>(across_size_ * each);
    pack_columns<T>(at.rows, s_.size, {features + at.query, s_.width(), 1}, columns_, each, packed);
    ChainPanel<T> panel;
    panel.rows = at.keys;
    panel.length = at.rows;
    panel.a = pairs;
    panel.a_row = 1;
    panel.a_col = stride_;
    panel.b_row = columns_;
    panel.c_row = s_.memory_width();
    panel.start = ChainStart::kResume;
    across_features(panel, packed, each, out);
  }

 private:
  /// Rows of scores do not all begin in the same sets of a cache.
  static constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));

  [[nodiscard]] std::int64_t features_panel() const { return s_.size * kernel_.columns() + kLine; }
  [[nodiscard]] std::int64_t keys_panel() const { return s_.keys * columns_ + kLine; }

  void across_features(ChainPanel<T>& panel, const T* b, std::int64_t each, T* c) const {
    for (std::int64_t j = 0; j < s_.size; j += columns_, b += each) {
      panel.b = b;
      panel.c = c + j;
      panel.set_columns(kernel_.width, std::min(columns_, s_.size - j));
      kernel_.run(panel);
    }
  }

  const AttentionShape& s_;
  const ChainKernel<T>& kernel_ = chain_kernel<T>();
  std::int64_t stride_;
  std::int64_t across_keys_;
  std::int64_t columns_;  ///< Width of a panel of features.
  std::int64_t across_size_;
};

/// Dropout's words follow each other without gaps between rows; so do probabilities that are kept.
template <typename T>
bool has_whole_rows(const AttentionDropout& dropout, const AttentionState<T>& state) {
  return dropout.p > 0 || state.probabilities != nullptr;
}

/// Probabilities of one row of a block.
template <typename T>
struct Row {
  std::int64_t seen;  ///< Keys that the query sees.
  std::int64_t end;   ///< Keys whose probabilities are wanted.
  T* data;

  Row(const AttentionShape& s, const Block& at, std::int64_t r, std::int64_t stride, T* scores)
      : seen(s.causal ? at.first + r + s.keys - s.queries + 1 : s.keys),
        end(stride == s.keys ? s.keys : at.keys),
        data(scores + r * stride) {}

  /// Turns scores into exponent(score), which is minus infinity's for keys that are not seen.
  template <class Exponent>
  void exponents(const Exponent& exponent) const {
    for (std::int64_t j = 0; j < seen; ++j) data[j] = exponent(data[j]);
    if (seen < end) std::fill(data + seen, data + end, exponent(-math::detail::kInfinity<T>));
  }
};

template <typename T>
void softmax_rows(const AttentionShape& s, const Block& at, std::int64_t stride, T* logs,
                  T* scores) {
  const T scale = s.scale<T>();
  for (std::int64_t r = 0; r < at.rows; ++r) {
    const Row<T> row(s, at, r, stride, scores);
    for (std::int64_t j = 0; j < row.seen; ++j) row.data[j] *= scale;
    const T top = row_max(row.seen, row.data);
    row.exponents([=](T score) { return math::exp(score - top); });
    const T total =
        static_cast<T>(lane_sum<T>(at.keys, [=](std::int64_t j) { return row.data[j]; }));
    for (std::int64_t j = 0; j < row.end; ++j) row.data[j] /= total;
    if (logs != nullptr) logs[at.row + r] = math::log_sum_exp(top, total);
  }
}

/// The probabilities of a block again, from the log-sum-exps of its rows.
template <typename T>
void exponentials(const AttentionShape& s, const Block& at, std::int64_t stride, const T* logs,
                  T* scores) {
  const T scale = s.scale<T>();
  for (std::int64_t r = 0; r < at.rows; ++r) {
    const T log = logs[at.row + r];
    Row<T>(s, at, r, stride, scores).exponents([=](T product) {
      return math::exp(product * scale - log);
    });
  }
}

/// Draws the mask of a block, and returns what it leaves of the probabilities.
template <typename T>
T* drop(const AttentionShape& s, const Block& at, const AttentionDropout& d, const T* probabilities,
        std::uint8_t* mask) {
  T* const kept = scratch<T, 4>(rows_at_a_time(s) * s.keys);
  const Generator& g = d.generator;
  dropout_forward<T>(at.rows * s.keys, probabilities, d.p, g.seed, g.stream,
                     g.offset + static_cast<std::uint64_t>(at.row * s.keys), mask, kept);
  return kept;
}

std::uint8_t* mask_scratch(const AttentionShape& s) {
  return scratch<std::uint8_t, 6>(rows_at_a_time(s) * s.keys);
}

/// Rows of scores below which a second thread costs more than it brings.
std::int64_t rows_at_least(const AttentionShape& s) {
  return kProductGrain / std::max<std::int64_t>(s.keys * s.size, 1) + 1;
}

}  // namespace

template <typename T>
void attention_forward(const AttentionShape& s, const T* q, const T* memory,
                       const AttentionDropout& dropout, const AttentionState<T>& state, T* y) {
  const std::int64_t each = blocks(s);
  parallel(s.batch * s.heads * each, rows_at_least(s) / rows_at_a_time(s) + 1, 1,
           [&](std::int64_t begin, std::int64_t end) {
             const Products<T> products(s, has_whole_rows(dropout, state));
             const T* keys = nullptr;
             const T* values = nullptr;
             for (std::int64_t n = begin; n < end; ++n) {
               const std::int64_t bh = n / each;
               const Block at(s, bh / s.heads, bh % s.heads, n % each);
               if (n == begin || n % each == 0) {
                 keys = products.template pack_for_pairs<7>(memory + at.key);
                 values = products.template pack_for_keys<8>(memory + at.key + s.to_value());
               }
               const std::int64_t first = at.row * s.keys;
               T* probabilities = state.probabilities != nullptr ? state.probabilities + first
                                                                 : scratch<T, 3>(products.scores());
               products.pairs(at, q, keys, probabilities);
               softmax_rows(s, at, products.stride(), state.logs, probabilities);
               if (dropout.p > 0) {
                 std::uint8_t* mask = state.mask != nullptr ? state.mask + first : mask_scratch(s);
                 probabilities = drop(s, at, dropout, probabilities, mask);
               }
               products.over_keys(at, probabilities, values, y);
             }
           });
}

namespace {

/// The backward of one thread's heads of memory.
template <typename T>
struct HeadBackward {
  const AttentionShape& s;
  const AttentionDropout& dropout;
  const AttentionState<T>& state;
  const T* gy;
  const T* q;
  const T* memory;
  const T* y;
  T* gq;
  T* gmemory;
  Products<T> products{s, has_whole_rows(dropout, state)};

  /// Keys and values of one head, and the queries of all heads that read them.
  void run(std::int64_t b, std::int64_t memory_head) const {
    const std::int64_t group = s.heads / s.memory_heads;
    const std::int64_t at = s.key_at(b, 0, memory_head * group);
    const Packed packed = pack(at);
    for (std::int64_t j = 0; gmemory != nullptr && j < s.keys; ++j) {
      std::fill_n(gmemory + at + j * s.memory_width(), s.size, T(0));
      std::fill_n(gmemory + at + j * s.memory_width() + s.to_value(), s.size, T(0));
    }
    for (std::int64_t h = memory_head * group; h < (memory_head + 1) * group; ++h) {
      for (std::int64_t n = 0; n < blocks(s); ++n) block(Block(s, b, h, n), packed);
    }
  }

 private:
  struct Packed {
    const T* keys_for_pairs;
    const T* values_for_pairs;
    const T* keys;
  };

  Packed pack(std::int64_t at) const {
    return {
        state.probabilities == nullptr ? products.template pack_for_pairs<7>(memory + at) : nullptr,
        products.template pack_for_pairs<8>(memory + at + s.to_value()),
        gq == nullptr ? nullptr : products.template pack_for_keys<9>(memory + at)};
  }

  void block(const Block& at, const Packed& packed) const {
    const T* probabilities = find_probabilities(at, packed);
    const T* kept = probabilities;
    const std::uint8_t* mask = state.mask != nullptr ? state.mask + at.row * s.keys : nullptr;
    if (dropout.p > 0 && mask != nullptr) {
      T* const again = scratch<T, 4>(rows_at_a_time(s) * s.keys);
      dropout_backward<T>(at.rows * s.keys, probabilities, mask, dropout.p, again);
      kept = again;
    } else if (dropout.p > 0) {
      std::uint8_t* const redrawn = mask_scratch(s);
      kept = drop(s, at, dropout, probabilities, redrawn);
      mask = redrawn;
    }
    if (gmemory != nullptr) {
      products.add_over_queries(at, kept, gy, gmemory + at.key + s.to_value());
    }
    T* const gradient = scratch<T, 5>(products.scores());
    products.pairs(at, gy, packed.values_for_pairs, gradient);
    if (dropout.p > 0) {
      for (std::int64_t r = 0; r < at.rows; ++r) {
        T* const row = gradient + r * s.keys;
        dropout_backward<T>(at.keys, row, mask + r * s.keys, dropout.p, row);
      }
    }
    for (std::int64_t r = 0; r < at.rows; ++r) {
      differentiate_row(at, r, probabilities + r * products.stride(),
                        gradient + r * products.stride());
    }
    if (gq != nullptr) products.over_keys(at, gradient, packed.keys, gq);
    if (gmemory != nullptr) products.add_over_queries(at, gradient, q, gmemory + at.key);
  }

  const T* find_probabilities(const Block& at, const Packed& packed) const {
    if (state.probabilities != nullptr) return state.probabilities + at.row * s.keys;
    T* const again = scratch<T, 3>(products.scores());
    products.pairs(at, q, packed.keys_for_pairs, again);
    exponentials(s, at, products.stride(), static_cast<const T*>(state.logs), again);
    return again;
  }

  void differentiate_row(const Block& at, std::int64_t r, const T* probabilities, T* row) const {
    const std::int64_t query = at.query + r * s.width();
    const T dot = static_cast<T>(
        state.logs != nullptr
            ? lane_sum<T>(s.size, [&](std::int64_t c) { return gy[query + c] * y[query + c]; })
            : lane_sum<T>(at.keys, [&](std::int64_t j) { return row[j] * probabilities[j]; }));
    const T scale = s.scale<T>();
    for (std::int64_t j = 0; j < at.keys; ++j) {
      row[j] = math::attention_score_gradient(row[j], probabilities[j], dot, scale);
    }
  }
};

}  // namespace

template <typename T>
void attention_backward(const AttentionShape& s, const T* gy, const T* q, const T* memory,
                        const T* y, const AttentionDropout& dropout, const AttentionState<T>& state,
                        T* gq, T* gmemory) {
  parallel(s.batch * s.memory_heads, rows_at_least(s) / s.queries + 1, 1,
           [&](std::int64_t begin, std::int64_t end) {
             const HeadBackward<T> backward{s, dropout, state, gy, q, memory, y, gq, gmemory};
             for (std::int64_t n = begin; n < end; ++n)
               backward.run(n / s.memory_heads, n % s.memory_heads);
           });
}

REMATCH_ATTENTION_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
