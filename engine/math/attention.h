#pragma once

#include <cmath>
#include <cstdint>

#include "engine/math/elementary.h"
#include "engine/math/host_device.h"

namespace rematch::math {

/// Operands of attention: queries[batch, queries, heads * size], and keys and values side by
/// side in memory[batch, keys, 2 * memory_heads * size]. Head h reads the keys and values of head
/// h / (heads / memory_heads).
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t queries = 1;
  std::int64_t keys = 1;
  std::int64_t heads = 1;
  std::int64_t memory_heads = 1;
  std::int64_t size = 1;
  /// Query i sees keys 0 .. i + keys - queries, else all.
  bool causal = false;

  REMATCH_HD constexpr std::int64_t width() const { return heads * size; }
  REMATCH_HD constexpr std::int64_t memory_width() const { return 2 * memory_heads * size; }
  /// Rows of scores, each of `keys`: by batch, head and query.
  REMATCH_HD constexpr std::int64_t rows() const { return batch * heads * queries; }
  REMATCH_HD constexpr std::int64_t scores() const { return rows() * keys; }
  REMATCH_HD constexpr bool sees(std::int64_t query, std::int64_t key) const {
    return !causal || key <= query + keys - queries;
  }
  /// Sums over keys run over those that the last query of a block sees; sums over queries, over
  /// those of all blocks that see the key. Probabilities and gradients beyond them are not read.
  static constexpr std::int64_t kBlock = 64;
  REMATCH_HD constexpr std::int64_t keys_of(std::int64_t query) const {
    if (!causal) return keys;
    const std::int64_t end = (query / kBlock + 1) * kBlock;
    return (end < queries ? end : queries) + keys - queries;
  }
  REMATCH_HD constexpr std::int64_t first_query_of(std::int64_t key) const {
    return causal && key > keys - queries ? (key - keys + queries) / kBlock * kBlock : 0;
  }
  /// Where the first element of a head of a query is, or of its keys; its values follow the keys
  /// of all heads.
  REMATCH_HD constexpr std::int64_t query_at(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return (b * queries + i) * width() + h * size;
  }
  REMATCH_HD constexpr std::int64_t key_at(std::int64_t b, std::int64_t j, std::int64_t h) const {
    return (b * keys + j) * memory_width() + h / (heads / memory_heads) * size;
  }
  REMATCH_HD constexpr std::int64_t to_value() const { return memory_heads * size; }

  template <typename T>
  T scale() const {
    return static_cast<T>(1 / std::sqrt(static_cast<double>(size)));
  }
};

/// Results that a forward leaves to its backward: either all probabilities, before dropout, and its
/// mask if there is one; or, where `logs` is given, the log-sum-exp of each row of scores, from
/// which the backward computes the probabilities again, and draws the mask again.
template <typename T>
struct AttentionState {
  T* probabilities = nullptr;
  std::uint8_t* mask = nullptr;
  T* logs = nullptr;
};

/// The score of a pair with this product; minus infinity where the query does not see the key, so
/// that its probability is zero.
template <typename T>
REMATCH_HD inline T attention_score(bool sees, T product, T scale) {
  return sees ? product * scale : -detail::kInfinity<T>;
}

/// log(sum of exp(score)) of a row, from its largest score and the sum of exp(score - largest).
template <typename T>
REMATCH_HD inline T log_sum_exp(T top, T total) {
  return top + log(total);
}

/// The gradient of a query's product with a key, from that of its probability; `dot` is the sum of
/// gradient * probability over the row.
template <typename T>
REMATCH_HD inline T attention_score_gradient(T gradient, T probability, T dot, T scale) {
  return probability * (gradient - dot) * scale;
}

}  // namespace rematch::math
