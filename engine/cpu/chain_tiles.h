#pragma once

// The tiles of a ChainPanel, over a vector type V. Included by one source file per instruction set,
// whose V has internal linkage, and calls nothing of other headers: no function compiled for a
// wider instruction set may stand in for one of the same name elsewhere.

#include "engine/cpu/chain.h"

// Early, so that accumulators become registers.
#if defined(__clang__)
#define REMATCH_UNROLLED _Pragma("unroll")
#else
#define REMATCH_UNROLLED _Pragma("GCC unroll 8")
#endif

namespace rematch::cpu::detail {

/// kRows rows from `row` on of a panel of kVectors vectors, the last one cut short when kPartial;
/// kTable: b has a table of rows.
template <class V, int kRows, int kVectors, bool kPartial, bool kTable>
inline void chain_tile(const ChainPanel<typename V::Element>& p, std::int64_t row) {
  using T = typename V::Element;
  using Reg = typename V::Reg;
  Reg acc[kRows][kVectors];
  const typename V::Mask mask = V::mask(kPartial ? p.last : V::kWidth);
  const auto load = [&](const T* from, int v) __attribute__((always_inline)) {
    return kPartial && v == kVectors - 1 ? V::load(from, mask) : V::load(from);
  };
  T* const c = p.c + row * p.c_row;
  REMATCH_UNROLLED
  for (int i = 0; i < kRows; ++i) {
    REMATCH_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      if (p.start == ChainStart::kRowValue) {
        acc[i][v] = V::broadcast(p.row_values + row + i);
      } else if (p.start == ChainStart::kResume) {
        acc[i][v] = load(c + i * p.c_row + p.c_at[v], v);
      } else {
        acc[i][v] = V::zero();
      }
    }
  }
  const T* a[kRows];
  REMATCH_UNROLLED
  for (int i = 0; i < kRows; ++i) {
    a[i] = p.a + (p.a_rows == nullptr ? (row + i) * p.a_row : p.a_rows[row + i]);
  }
  std::int64_t at[kVectors];
  REMATCH_UNROLLED
  for (int v = 0; v < kVectors; ++v) at[v] = p.b_at[v];
  const T* b = p.b;
  const std::int64_t* b_rows = p.b_rows;
  for (std::int64_t run = 0; run < p.runs; ++run) {
    const std::int64_t first = run * p.a_run;
    const std::int64_t end = first + p.length * p.a_col;
    for (std::int64_t k = first; k != end; k += p.a_col) {
      const T* from = kTable ? b + *b_rows++ : b;
      if (!kTable) b += p.b_row;
      Reg bv[kVectors];
      REMATCH_UNROLLED
      for (int v = 0; v < kVectors; ++v) bv[v] = load(from + at[v], v);
      REMATCH_UNROLLED
      for (int i = 0; i < kRows; ++i) {
        const Reg ai = V::broadcast(a[i] + k);
        REMATCH_UNROLLED
        for (int v = 0; v < kVectors; ++v) acc[i][v] = V::fma(ai, bv[v], acc[i][v]);
      }
    }
  }
  REMATCH_UNROLLED
  for (int i = 0; i < kRows; ++i) {
    REMATCH_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      T* const to = c + i * p.c_row + p.c_at[v];
      if (p.start == ChainStart::kSum) acc[i][v] = V::add(load(to, v), acc[i][v]);
      if (kPartial && v == kVectors - 1) {
        V::store(to, mask, acc[i][v]);
      } else {
        V::store(to, acc[i][v]);
      }
    }
  }
}

/// All rows of a panel.
template <class V, int kVectors, bool kPartial, bool kTable>
void chain_rows(const ChainPanel<typename V::Element>& p) {
  std::int64_t row = 0;
  std::int64_t left = p.rows;
  // Two tiles of four keep the multipliers busier than six rows and two.
  for (; left >= 9 || left == 6; left -= 6, row += 6) {
    chain_tile<V, 6, kVectors, kPartial, kTable>(p, row);
  }
  for (; left >= 4; left -= 4, row += 4) chain_tile<V, 4, kVectors, kPartial, kTable>(p, row);
  if (left == 3) chain_tile<V, 3, kVectors, kPartial, kTable>(p, row);
  if (left == 2) chain_tile<V, 2, kVectors, kPartial, kTable>(p, row);
  if (left == 1) chain_tile<V, 1, kVectors, kPartial, kTable>(p, row);
}

template <class V, int kVectors>
void chain_vectors(const ChainPanel<typename V::Element>& p) {
  const bool partial = p.last < V::kWidth;
  if (p.b_rows == nullptr) {
    partial ? chain_rows<V, kVectors, true, false>(p) : chain_rows<V, kVectors, false, false>(p);
  } else {
    partial ? chain_rows<V, kVectors, true, true>(p) : chain_rows<V, kVectors, false, true>(p);
  }
}

template <class V>
void chain_panel(const ChainPanel<typename V::Element>& p) {
  static_assert(V::kVectors == 2 || V::kVectors == 4);
  if constexpr (V::kVectors == 4) {
    if (p.vectors == 4) return chain_vectors<V, 4>(p);
    if (p.vectors == 3) return chain_vectors<V, 3>(p);
  }
  if (p.vectors == 2) return chain_vectors<V, 2>(p);
  if (p.vectors == 1) chain_vectors<V, 1>(p);
}

}  // namespace rematch::cpu::detail
