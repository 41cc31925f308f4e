#pragma once

// Sizes at which kernels begin another block, and so another branch: plain_loops_test.cpp compares
// the ops around each of these with loops that know no block. packed_product.h has sizes of its
// kernels alone.

#include <cstdint>

namespace rematch::cpu::blocks {

/// Rows of a product that are computed before the next columns, so that their part of a stays in
/// cache.
inline constexpr std::int64_t kProductRows = 96;
/// Depth between which chains rest in c, and elements of a packed block of b.
inline constexpr std::int64_t kProductDepth = 256;
inline constexpr std::int64_t kProductPacked = 1 << 16;
/// Products with less than this in b run on it as it is.
inline constexpr std::int64_t kProductSmall = 1 << 13;
/// Columns from which product_transposed packs both operands.
inline constexpr std::int64_t kProductManyColumns = 128;
/// A block of product_transposed before it is transposed.
inline constexpr std::int64_t kProductBlockRows = 384;
inline constexpr std::int64_t kProductBlockCols = 128;

/// Whether a product is so large that both operands are packed: packed_product.h has the sizes of
/// its blocks. Smaller ones take longer to pack than to multiply.
inline bool worth_packing(std::int64_t rows, std::int64_t cols, std::int64_t depth) {
  return rows >= 12 && cols >= 16 && rows * cols * depth >= 1 << 16;
}

/// Outputs that one chain of conv2d_grad_weight runs over, in whole rows of outputs but at least
/// one: part of the order of its sums.
inline constexpr std::int64_t kConv2dChainOutputs = 128;

/// Random words that are drawn at a time; even, so that Box-Muller pairs stay together.
inline constexpr std::int64_t kDraws = 512;

/// Gradients of a router's logits that are worked on at a time.
inline constexpr std::int64_t kMoeLogits = 1 << 16;

/// Kept numbers of a recurrent layer's samples that are worked on at a time; one sample may have
/// more.
inline constexpr std::int64_t kRecurrentKept = 1 << 17;
/// Units of a step below which a second thread costs more than it brings.
inline constexpr std::int64_t kRecurrentUnits = 1024;

}  // namespace rematch::cpu::blocks
