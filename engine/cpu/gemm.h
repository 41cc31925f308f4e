#pragma once

// The two matrix products everything dense is made of. Both fix the arithmetic of one output
// element, never its place in a tile: tiling, packing and (later) threading only move work around.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/cpu/simd.h"

#if defined(__GNUC__) && !defined(__clang__)
#define REMATCH_OUT_OF_LINE [[gnu::noinline, gnu::noclone]]
#else
#define REMATCH_OUT_OF_LINE
#endif

namespace rematch::cpu {

/// Row r of a matrix starts r * stride elements in.
struct StridedRows {
  std::int64_t stride;
  std::int64_t operator()(std::int64_t row) const { return row * stride; }
};

/// Row r of a matrix starts table[r] elements in.
struct TableRows {
  const std::int64_t* table;
  std::int64_t operator()(std::int64_t row) const { return table[row]; }
};

/// a[i,k] at i * row + k * col.
template <typename T>
struct Strided {
  const T* data;
  std::int64_t row;
  std::int64_t col;
};

/// What an element of chain_product starts from.
template <typename T>
struct ChainStart {
  enum class Kind { kZero, kRowValue, kOutput } kind = Kind::kZero;
  const T* row_values = nullptr;
};

namespace detail {

/// c[0..rows, 0..width): the chains of a tile of kRows x (kVectors vectors), the last vector cut to
/// `last` lanes when kPartial.
template <typename T, int kRows, int kVectors, bool kPartial, typename Rows>
inline void chain_tile(const Strided<T>& a, const T* b, const Rows& b_rows, std::int64_t depth,
                       ChainStart<T> start, T* c, std::int64_t ldc, std::int64_t last) {
  using V = Simd<T>;
  typename V::Reg acc[kRows][kVectors];
  const __m256i mask = V::mask(kPartial ? last : V::kWidth);
  const auto load = [&](const T* p, int v) {
    return kPartial && v == kVectors - 1 ? V::load(p + v * V::kWidth, mask)
                                         : V::load(p + v * V::kWidth);
  };
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      if (start.kind == ChainStart<T>::Kind::kRowValue) {
        acc[i][v] = V::broadcast(start.row_values + i);
      } else if (start.kind == ChainStart<T>::Kind::kOutput) {
        acc[i][v] = load(c + i * ldc, v);
      } else {
        acc[i][v] = V::zero();
      }
    }
  }
  const T* a_col = a.data;
  for (std::int64_t k = 0; k < depth; ++k, a_col += a.col) {
    const T* b_row = b + b_rows(k);
    typename V::Reg bv[kVectors];
    for (int v = 0; v < kVectors; ++v) bv[v] = load(b_row, v);
    for (int i = 0; i < kRows; ++i) {
      const typename V::Reg ai = V::broadcast(a_col + i * a.row);
      for (int v = 0; v < kVectors; ++v) acc[i][v] = V::fma(ai, bv[v], acc[i][v]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      T* p = c + i * ldc + v * V::kWidth;
      if (kPartial && v == kVectors - 1) {
        V::store(p, mask, acc[i][v]);
      } else {
        V::store(p, acc[i][v]);
      }
    }
  }
}

/// All rows of one column tile.
template <typename T, int kVectors, bool kPartial, typename Rows>
inline void chain_column(std::int64_t rows, std::int64_t depth, Strided<T> a, const T* b,
                         const Rows& b_rows, ChainStart<T> start, T* c, std::int64_t ldc,
                         std::int64_t last) {
  const auto step = [&]<int kRows>() {
    chain_tile<T, kRows, kVectors, kPartial>(a, b, b_rows, depth, start, c, ldc, last);
    a.data += kRows * a.row;
    c += kRows * ldc;
    start.row_values += start.row_values == nullptr ? 0 : kRows;
    rows -= kRows;
  };
  // Two tiles of four keep the multipliers busier than six rows and two.
  // NOLINTNEXTLINE(bugprone-infinite-loop): step() takes from rows.
  while (rows >= 9 || rows == 6) step.template operator()<6>();
  if (rows >= 7) step.template operator()<4>();
  if (rows == 5) step.template operator()<5>();
  if (rows == 4) step.template operator()<4>();
  if (rows == 3) step.template operator()<3>();
  if (rows == 2) step.template operator()<2>();
  if (rows == 1) step.template operator()<1>();
}

/// The lane sums of kRows rows of a with kCols rows of b, from first_col on. Kept out of line: gcc
/// 12 spills accumulators when it specialises this for its callers.
template <typename T, int kRows, int kCols, typename Rows>
REMATCH_OUT_OF_LINE void lane_tile(const T* a, std::int64_t a_stride, const T* b,
                                   const Rows& b_rows, std::int64_t first_col,
                                   std::int64_t segments, std::int64_t length,
                                   std::int64_t a_segment, std::int64_t b_segment,
                                   T (&sums)[kRows][kCols]) {
  using V = Simd<T>;
  typename V::Reg acc[kRows][kCols];
  std::int64_t b_at[kCols];
  for (int j = 0; j < kCols; ++j) b_at[j] = b_rows(first_col + j);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) acc[i][j] = V::zero();
  }
  const std::int64_t full = length / V::kWidth * V::kWidth;
  const __m256i mask = V::mask(length - full);
  for (std::int64_t s = 0; s < segments; ++s, a += a_segment, b += b_segment) {
    for (std::int64_t k = 0; k < full; k += V::kWidth) {
      typename V::Reg bv[kCols];
      for (int j = 0; j < kCols; ++j) bv[j] = V::load(b + b_at[j] + k);
      for (int i = 0; i < kRows; ++i) {
        const typename V::Reg ai = V::load(a + i * a_stride + k);
        for (int j = 0; j < kCols; ++j) acc[i][j] = V::fma(ai, bv[j], acc[i][j]);
      }
    }
    if (full == length) continue;
    typename V::Reg bv[kCols];
    for (int j = 0; j < kCols; ++j) bv[j] = V::load(b + b_at[j] + full, mask);
    for (int i = 0; i < kRows; ++i) {
      const typename V::Reg ai = V::load(a + i * a_stride + full, mask);
      for (int j = 0; j < kCols; ++j) acc[i][j] = V::fma(ai, bv[j], acc[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) sums[i][j] = V::sum(acc[i][j]);
  }
}

}  // namespace detail

/// c[rows,cols] (row stride ldc) = start + a[rows,depth] b[depth,cols]. Element (i,j) is the chain
/// acc = fma(a[i,k], b[k,j], acc) over ascending k.
template <typename T, typename Rows>
void chain_product(std::int64_t rows, std::int64_t cols, std::int64_t depth, const Strided<T>& a,
                   const T* b, const Rows& b_rows, ChainStart<T> start, T* c, std::int64_t ldc) {
  constexpr std::int64_t kWidth = Simd<T>::kWidth;
  std::int64_t j = 0;
  for (; j + 2 * kWidth <= cols; j += 2 * kWidth) {
    detail::chain_column<T, 2, false>(rows, depth, a, b + j, b_rows, start, c + j, ldc, 0);
  }
  const std::int64_t rest = cols - j;
  if (rest > kWidth) {
    detail::chain_column<T, 2, true>(rows, depth, a, b + j, b_rows, start, c + j, ldc,
                                     rest - kWidth);
  } else if (rest == kWidth) {
    detail::chain_column<T, 1, false>(rows, depth, a, b + j, b_rows, start, c + j, ldc, 0);
  } else if (rest > 0) {
    detail::chain_column<T, 1, true>(rows, depth, a, b + j, b_rows, start, c + j, ldc, rest);
  }
}

/// The dot products of the rows of a (stride a_stride) with the rows of b, over `segments` runs of
/// `length` elements each, runs a_segment and b_segment apart: emit(i, j, value). Lane l of a
/// vector sums positions congruent to l within their run by fma in ascending order; Simd::sum adds
/// the lanes. kRowsOuter chooses which operand stays in cache, not the result.
template <bool kRowsOuter, typename T, typename Rows, typename Emit>
void lane_product(std::int64_t rows, std::int64_t cols, const T* a, std::int64_t a_stride,
                  const T* b, const Rows& b_rows, std::int64_t segments, std::int64_t length,
                  std::int64_t a_segment, std::int64_t b_segment, const Emit& emit) {
  const auto tile = [&]<int kRows, int kCols>(std::int64_t i, std::int64_t j) {
    T sums[kRows][kCols];
    detail::lane_tile<T, kRows, kCols>(a + i * a_stride, a_stride, b, b_rows, j, segments, length,
                                       a_segment, b_segment, sums);
    for (int u = 0; u < kRows; ++u) {
      for (int v = 0; v < kCols; ++v) emit(i + u, j + v, sums[u][v]);
    }
  };
  const auto row_tiles = [&](std::int64_t count, const auto& visit) {
    std::int64_t i = 0;
    for (; i + 4 <= count; i += 4) visit.template operator()<4>(i);
    if (i + 2 <= count) {
      visit.template operator()<2>(i);
      i += 2;
    }
    if (i < count) visit.template operator()<1>(i);
  };
  const auto col_tiles = [&](std::int64_t count, const auto& visit) {
    std::int64_t j = 0;
    for (; j + 3 <= count; j += 3) visit.template operator()<3>(j);
    if (count - j == 2) visit.template operator()<2>(j);
    if (count - j == 1) visit.template operator()<1>(j);
  };
  if constexpr (kRowsOuter) {
    row_tiles(rows, [&]<int kRows>(std::int64_t i) {
      col_tiles(cols,
                [&]<int kCols>(std::int64_t j) { tile.template operator()<kRows, kCols>(i, j); });
    });
  } else {
    col_tiles(cols, [&]<int kCols>(std::int64_t j) {
      row_tiles(rows,
                [&]<int kRows>(std::int64_t i) { tile.template operator()<kRows, kCols>(i, j); });
    });
  }
}

}  // namespace rematch::cpu

#undef REMATCH_OUT_OF_LINE
