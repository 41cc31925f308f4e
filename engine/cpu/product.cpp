#include "engine/cpu/product.h"

#include <algorithm>

#include "engine/cpu/block_sizes.h"
#include "engine/cpu/chain.h"
#include "engine/cpu/packed_product.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/threads.h"
#include "engine/cpu/transpose.h"
#include "engine/kernels/declare.h"

namespace rematch::cpu {

namespace {

/// One thread's part of a product.
template <typename T>
struct Part {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t depth;
  Strided<T> a;
  Strided<T> b;
  ChainStart start;
  const T* row_values;
  T* c;
  std::int64_t c_row;
};

/// One block of columns of a part, over `length` terms from `k0` on.
template <typename T>
void multiply_block(const ChainKernel<T>& kernel, const Part<T>& p, std::int64_t k0,
                    std::int64_t length, std::int64_t j0, std::int64_t cols, bool pack_a,
                    bool pack_b) {
  const std::int64_t columns = kernel.columns();
  Strided<T> b{p.b.data + k0 * p.b.row + j0 * p.b.col, p.b.row, p.b.col};
  std::int64_t panel_step = columns;
  if (pack_b) {
    T* const packed = scratch<T, 0>(length * (cols + columns));
    pack_columns<T>(length, cols, b, columns, columns * length, packed);
    b = {packed, columns, 1};
    panel_step = columns * length;
  }
  ChainPanel<T> panel;
  panel.length = length;
  panel.start = k0 == 0 ? p.start : ChainStart::kResume;
  panel.b_row = b.row;
  panel.c_row = p.c_row;
  for (std::int64_t i0 = 0; i0 < p.rows; i0 += blocks::kProductRows) {
    panel.rows = std::min(blocks::kProductRows, p.rows - i0);
    panel.a = p.a.data + i0 * p.a.row + k0 * p.a.col;
    panel.a_row = p.a.row;
    panel.a_col = p.a.col;
    if (pack_a) {
      T* const packed = scratch<T, 1>(blocks::kProductRows * length);
      transpose(length, panel.rows, panel.a, p.a.col, packed, length);
      panel.a = packed;
      panel.a_row = length;
      panel.a_col = 1;
    }
    panel.row_values = p.row_values == nullptr ? nullptr : p.row_values + i0;
    panel.b = b.data;
    for (std::int64_t j = 0; j < cols; j += columns, panel.b += panel_step) {
      panel.set_columns(kernel.width, std::min(columns, cols - j));
      panel.c = p.c + i0 * p.c_row + j0 + j;
      kernel.run(panel);
    }
  }
}

template <typename T>
void multiply(const ChainKernel<T>& kernel, const Part<T>& p) {
  const std::int64_t columns = kernel.columns();
  const bool small = p.depth * p.cols < blocks::kProductSmall;
  // Rows of a wide panel are whole cache lines, which are read in place almost as fast.
  const bool wide = columns * static_cast<std::int64_t>(sizeof(T)) >= 256;
  const bool pack_b = p.b.col != 1 || (!small && p.rows > (wide ? blocks::kProductRows : 12));
  const bool pack_a = p.a.col != 1 && !small;
  const std::int64_t depth = small ? std::max<std::int64_t>(p.depth, 1) : blocks::kProductDepth;
  const std::int64_t cols =
      std::max(blocks::kProductPacked / depth / columns, std::int64_t{1}) * columns;
  for (std::int64_t k0 = 0; k0 == 0 || k0 < p.depth; k0 += depth) {
    const std::int64_t length = std::min(depth, p.depth - k0);
    for (std::int64_t j0 = 0; j0 < p.cols; j0 += cols) {
      multiply_block(kernel, p, k0, length, j0, std::min(cols, p.cols - j0), pack_a, pack_b);
    }
  }
}

}  // namespace

template <typename T>
void product(std::int64_t rows, std::int64_t cols, std::int64_t depth, const Strided<T>& a,
             const Strided<T>& b, bool resume, T* c, std::int64_t c_row) {
  const ChainKernel<T>& kernel = chain_kernel<T>();
  const ChainStart start = resume ? ChainStart::kResume : ChainStart::kZero;
  if (blocks::worth_packing(rows, cols, depth)) {
    return PackedProduct<T>{kernel, rows, cols, depth, a, b, start, nullptr, c, c_row}.run();
  }
  if (rows >= cols) {
    const std::int64_t grain = kProductGrain / std::max<std::int64_t>(cols * depth, 1) + 1;
    parallel(rows, grain, 24, [=, &kernel](std::int64_t begin, std::int64_t end) {
      multiply<T>(kernel, {end - begin,
                           cols,
                           depth,
                           {a.data + begin * a.row, a.row, a.col},
                           b,
                           start,
                           nullptr,
                           c + begin * c_row,
                           c_row});
    });
  } else {
    const std::int64_t grain = kProductGrain / std::max<std::int64_t>(rows * depth, 1) + 1;
    parallel(cols, grain, kernel.columns(), [=, &kernel](std::int64_t begin, std::int64_t end) {
      multiply<T>(kernel, {rows,
                           end - begin,
                           depth,
                           a,
                           {b.data + begin * b.col, b.row, b.col},
                           start,
                           nullptr,
                           c + begin,
                           c_row});
    });
  }
}

template <typename T>
void product_transposed(std::int64_t rows, std::int64_t cols, std::int64_t depth,
                        const Strided<T>& a, const Strided<T>& b, const T* bias, T* c,
                        std::int64_t c_row) {
  const ChainKernel<T>& kernel = chain_kernel<T>();
  // The transpose itself, unless packing all of a costs more than few columns bring.
  if (cols >= blocks::kProductManyColumns && blocks::worth_packing(cols, rows, depth)) {
    const ChainStart start = bias == nullptr ? ChainStart::kZero : ChainStart::kColumnValue;
    const Strided<T> b_rows{b.data, b.col, b.row};
    const Strided<T> a_cols{a.data, a.col, a.row};
    return PackedProduct<T>{kernel, cols, rows, depth, b_rows, a_cols, start, bias, c, c_row}.run();
  }
  const ChainStart start = bias == nullptr ? ChainStart::kZero : ChainStart::kRowValue;
  const std::int64_t grain = kProductGrain / std::max<std::int64_t>(cols * depth, 1) + 1;
  parallel(rows, grain, 24, [=, &kernel](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += blocks::kProductBlockRows) {
      const std::int64_t some_rows = std::min(blocks::kProductBlockRows, end - i);
      for (std::int64_t j = 0; j < cols; j += blocks::kProductBlockCols) {
        const std::int64_t some_cols = std::min(blocks::kProductBlockCols, cols - j);
        T* const block = scratch<T, 2>(some_rows * some_cols);
        multiply<T>(kernel, {some_rows,
                             some_cols,
                             depth,
                             {a.data + i * a.row, a.row, a.col},
                             {b.data + j * b.col, b.row, b.col},
                             start,
                             bias == nullptr ? nullptr : bias + i,
                             block,
                             some_cols});
        transpose(some_rows, some_cols, block, some_cols, c + j * c_row + i, c_row);
      }
    }
  });
}

REMATCH_INSTANTIATE(product);
REMATCH_INSTANTIATE(product_transposed);

}  // namespace rematch::cpu
