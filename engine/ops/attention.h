#pragma once

#include "engine/ops/noise.h"
#include "engine/tensor/tensor.h"

namespace rematch {

struct AttentionOptions {
  /// Heads of the queries; those of the memory follow from its width.
  std::int64_t heads = 1;
  /// Query i sees keys 0 .. i + keys - queries.
  bool causal = false;
  /// Saves the output and the log-sum-exp of each row of scores instead of the probabilities and
  /// the mask; the backward computes and draws them again.
  bool fused = false;
  /// Probability of dropout on the attention probabilities.
  double p = 0;
  RandomOptions random = {};
};

/// Scaled dot-product attention of queries q[batch, queries, width] to a memory[batch, keys, w]
/// whose first w / 2 features are keys and the others values. A head has width / heads features;
/// the memory has w / 2 of them for each of its own heads, each of which serves as many heads of
/// the queries. Dropout draws a word for every pair of a head, in the order [batch, head, query,
/// key]. Saves q and memory; then the probabilities and, if it draws, a mask of a byte for each;
/// fused, the output and the log-sum-exps.
Tensor attention(const Tensor& q, const Tensor& memory, const AttentionOptions& options);

}  // namespace rematch
