#pragma once

// A product whose operands lie in the order in which tiles read them: one stream from each.

#include <cstdint>

#include "engine/cpu/chain.h"

namespace rematch::cpu {

inline constexpr int kTileRows = 6;

/// Rows of the next tile where `left` are left: not a full one beside one of few rows.
static constexpr int tile_rows(std::int64_t left) {
  constexpr std::int8_t kLast[2 * kTileRows] = {0, 1, 2, 3, 4, 5, 6, 4, 4, 5, 5, 6};
  return left < 2 * kTileRows ? kLast[left] : kTileRows;
}

/// c[i,j] = fma(a[i,k], b[k,j], ...) over ascending k < depth, for all rows and cols.
template <typename T>
struct PackedBlock {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t depth = 0;
  /// Panel of tile rows [i, i + height) at i * depth: `height` elements for each k.
  const T* a = nullptr;
  /// Panels of columns(), b_panel apart: so many elements for each k, also in the last one.
  const T* b = nullptr;
  std::int64_t b_panel = 0;
  T* c = nullptr;
  std::int64_t c_row = 0;
  /// kZero, kResume or kColumnValue.
  ChainStart start = ChainStart::kZero;
  const T* column_values = nullptr;
};

}  // namespace rematch::cpu
