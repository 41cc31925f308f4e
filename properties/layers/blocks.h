#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/cpu/block_sizes.h"
#include "engine/math/attention.h"
#include "engine/math/lane_order.h"
#include "properties/layers/facts_writer.h"

/// Parts that kinds have in common of their Layer::in_blocks().
namespace rematch {

/// Extents beyond which kernels work in more than one block: rows and features of products, rows
/// and terms of sums, queries, and outputs of an image.
struct FirstBlock {
  static constexpr std::int64_t kRows = std::max(cpu::blocks::kProductRows, math::kChunkRows);
  static constexpr std::int64_t kFeatures = cpu::blocks::kProductRows;
  static constexpr std::int64_t kTerms = math::kSumBlock;
  static constexpr std::int64_t kQueries = math::AttentionShape::kBlock;
  static constexpr std::int64_t kOutputs = cpu::blocks::kConv2dChainOutputs;
  static constexpr std::int64_t kDraws = cpu::blocks::kDraws;
};

inline bool product_in_blocks(std::int64_t rows, std::int64_t cols, std::int64_t depth) {
  namespace blocks = cpu::blocks;
  return rows > blocks::kProductRows && !blocks::worth_packing(rows, cols, depth);
}

/// Rows of x by a weight for each of `features`: the gradients of both.
inline bool linear_in_blocks(const FactsWriter& w, std::int64_t features) {
  const std::int64_t width = w.x[w.x.rank() - 1];
  const std::int64_t rows = w.x.elements() / width;
  return product_in_blocks(rows, width, features) || product_in_blocks(features, width, rows);
}

/// Sums of `count` numbers each, or down columns of `rows`.
inline bool sums_in_blocks(std::int64_t count, std::int64_t rows) {
  return count > math::kSumBlock || rows > math::kChunkRows;
}

/// Statistics over the last dimension, and the gradients of the parameters that it has.
inline bool norm_of_rows_in_blocks(const FactsWriter& w) {
  const std::int64_t width = w.x[w.x.rank() - 1];
  return sums_in_blocks(width, w.x.elements() / width);
}

}  // namespace rematch
