#pragma once

// Large products: both operands are packed, in blocks that fit the caches. The chains of a block
// rest in c until the next block of the depth.

#include <algorithm>

#include "engine/cpu/pack.h"
#include "engine/cpu/packed.h"
#include "engine/cpu/product.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/threads.h"

namespace rematch::cpu {

/// c[rows,cols] = a[rows,depth] b[depth,cols], with chains that begin as `start` says.
template <typename T>
struct PackedProduct {
  const ChainKernel<T>& kernel;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t depth;
  Strided<T> a;
  Strided<T> b;
  ChainStart start;
  const T* column_values;
  T* c;
  std::int64_t c_row;

  void run() const {
    // Equal parts, lest the last be short.
    const std::int64_t parts = (depth + kDepth - 1) / kDepth;
    const std::int64_t step = (depth + parts - 1) / parts;
    for (std::int64_t k = 0; k < depth; k += step) {
      const std::int64_t length = std::min(step, depth - k);
      if (rows <= kFewRows && enough_columns()) {
        few_rows(k, length);
        continue;
      }
      for (std::int64_t j = 0; j < cols; j += kManyCols) {
        many_rows(j, std::min(kManyCols, cols - j), k, length);
      }
    }
  }

 private:
  /// A panel of b stays in the first cache while the rows of a pass by.
  static constexpr std::int64_t kDepth = 384;
  /// Rows of a that stay in the second cache.
  static constexpr std::int64_t kRows = 192;
  static constexpr std::int64_t kFewRows = 384;
  /// Columns that are packed at a time: for the second cache beside few rows of a, else for the
  /// third, which the cores share.
  static constexpr std::int64_t kFewCols = 256;
  static constexpr std::int64_t kManyCols = 1024;

  /// Elements from one panel to the next: not all of them in the same sets of a cache.
  [[nodiscard]] std::int64_t panel(std::int64_t length) const {
    return length * kernel.columns() + static_cast<std::int64_t>(64 / sizeof(T));
  }
  [[nodiscard]] std::int64_t panels(std::int64_t some_cols) const {
    return (some_cols + kernel.columns() - 1) / kernel.columns();
  }

  /// For each thread to have some.
  [[nodiscard]] bool enough_columns() const {
    return threads() == 1 || panels(cols) >= 2 * threads();
  }

  void pack_a(std::int64_t i, std::int64_t some_rows, std::int64_t k, std::int64_t length,
              T* packed) const {
    pack_rows<T>(some_rows, length, {a.data + i * a.row + k * a.col, a.row, a.col}, packed);
  }
  void pack_b(std::int64_t j, std::int64_t some_cols, std::int64_t k, std::int64_t length,
              T* packed) const {
    pack_columns<T>(length, some_cols, {b.data + k * b.row + j * b.col, b.row, b.col},
                    kernel.columns(), panel(length), packed);
  }

  void multiply(std::int64_t i, std::int64_t some_rows, std::int64_t j, std::int64_t some_cols,
                std::int64_t k, std::int64_t length, const T* packed_a, const T* packed_b) const {
    PackedBlock<T> block;
    block.rows = some_rows;
    block.cols = some_cols;
    block.depth = length;
    block.a = packed_a;
    block.b = packed_b;
    block.b_panel = panel(length);
    block.c = c + i * c_row + j;
    block.c_row = c_row;
    block.start = k == 0 ? start : ChainStart::kResume;
    block.column_values = column_values == nullptr ? nullptr : column_values + j;
    kernel.run_packed(block);
  }

  /// Terms [k, k + length) of all elements: a is packed once, and threads share out columns.
  void few_rows(std::int64_t k, std::int64_t length) const {
    T* const packed_a = scratch<T, 1>(kFewRows * kDepth);
    // Tiles as pack_rows() would choose them for all rows: what is left over goes with the last
    // part.
    constexpr std::int64_t kPart = 2 * kTileRows;
    const std::int64_t whole = rows / kPart;
    parallel(whole, kGrain / (kPart * length) + 1, 1,
             [=, this](std::int64_t begin, std::int64_t end) {
               const std::int64_t first = begin * kPart;
               const std::int64_t last = end == whole ? rows : end * kPart;
               pack_a(first, last - first, k, length, packed_a + first * length);
             });
    const std::int64_t grain = kProductGrain / (rows * length) + 1;
    parallel(cols, grain, kernel.columns(), [=, this](std::int64_t begin, std::int64_t end) {
      T* const packed_b = scratch<T, 0>(panels(kFewCols) * panel(kDepth));
      for (std::int64_t j = begin; j < end; j += kFewCols) {
        const std::int64_t some_cols = std::min(kFewCols, end - j);
        pack_b(j, some_cols, k, length, packed_b);
        multiply(0, rows, j, some_cols, k, length, packed_a, packed_b);
      }
    });
  }

  /// The same of some columns: b is packed once, and threads share out rows.
  void many_rows(std::int64_t j, std::int64_t some_cols, std::int64_t k,
                 std::int64_t length) const {
    const std::int64_t columns = kernel.columns();
    T* const packed_b = scratch<T, 0>(panels(kManyCols) * panel(kDepth));
    parallel(panels(some_cols), kGrain / (length * columns) + 1, 1,
             [=, this](std::int64_t begin, std::int64_t end) {
               const std::int64_t first = begin * columns;
               pack_b(j + first, std::min(some_cols, end * columns) - first, k, length,
                      packed_b + begin * panel(length));
             });
    const std::int64_t grain = kProductGrain / (some_cols * length) + 1;
    parallel(rows, grain, 4 * kTileRows, [=, this](std::int64_t begin, std::int64_t end) {
      T* const packed_a = scratch<T, 1>(kRows * kDepth);
      for (std::int64_t i = begin; i < end; i += kRows) {
        const std::int64_t some_rows = std::min(kRows, end - i);
        pack_a(i, some_rows, k, length, packed_a);
        multiply(i, some_rows, j, some_cols, k, length, packed_a, packed_b);
      }
    });
  }
};

}  // namespace rematch::cpu
