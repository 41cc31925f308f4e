#pragma once

// The tiles of a PackedBlock. Included as chain_tiles.h is, under the same rules.

#include "engine/cpu/chain_tiles.h"
#include "engine/cpu/packed.h"

namespace rematch::cpu::detail {

/// kRows x kVectors of a block, the last vector cut short when kPartial.
template <class V, int kRows, int kVectors, bool kPartial>
inline void packed_tile(const PackedBlock<typename V::Element>& p, const typename V::Element* a,
                        const typename V::Element* b, typename V::Element* c,
                        const typename V::Element* column_values, std::int64_t last) {
  using T = typename V::Element;
  using Reg = typename V::Reg;
  constexpr std::int64_t kColumns = V::kWidth * V::kVectors;
  const typename V::Mask mask = V::mask(kPartial ? last : V::kWidth);
  const auto load = [&](const T* from, int v) __attribute__((always_inline)) {
    return kPartial && v == kVectors - 1 ? V::load(from + v * V::kWidth, mask)
                                         : V::load(from + v * V::kWidth);
  };
  Reg acc[kRows][kVectors];
  REMATCH_UNROLLED
  for (int i = 0; i < kRows; ++i) {
    REMATCH_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      if (p.start == ChainStart::kResume) {
        acc[i][v] = load(c + i * p.c_row, v);
      } else if (p.start == ChainStart::kColumnValue) {
        acc[i][v] = load(column_values, v);
      } else {
        acc[i][v] = V::zero();
      }
    }
  }
  // The next tile's, which chains that go on wait for.
  REMATCH_UNROLLED
  for (int i = 0; i < kRows; ++i) __builtin_prefetch(c + (kRows + i) * p.c_row, 1);
  const auto add_term = [&](std::int64_t k) __attribute__((always_inline)) {
    Reg bv[kVectors];
    REMATCH_UNROLLED
    for (int v = 0; v < kVectors; ++v) bv[v] = V::load(b + k * kColumns + v * V::kWidth);
    REMATCH_UNROLLED
    for (int i = 0; i < kRows; ++i) {
      const Reg ai = V::broadcast(a + k * kRows + i);
      REMATCH_UNROLLED
      for (int v = 0; v < kVectors; ++v) acc[i][v] = V::fma(ai, bv[v], acc[i][v]);
    }
  };
  // Two terms a round: the fewer other instructions, the less another program on the core hurts.
  std::int64_t k = p.depth;
  for (; k >= 2; k -= 2, a += 2 * kRows, b += 2 * kColumns) {
    add_term(0);
    add_term(1);
  }
  if (k > 0) add_term(0);
  REMATCH_UNROLLED
  for (int i = 0; i < kRows; ++i) {
    REMATCH_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      T* const to = c + i * p.c_row + v * V::kWidth;
      if (kPartial && v == kVectors - 1) {
        V::store(to, mask, acc[i][v]);
      } else {
        V::store(to, acc[i][v]);
      }
    }
  }
}

/// All rows of one panel of b.
template <class V, int kVectors, bool kPartial>
void packed_rows(const PackedBlock<typename V::Element>& p, std::int64_t j, std::int64_t last) {
  using T = typename V::Element;
  const T* const b = p.b + j / (V::kWidth * V::kVectors) * p.b_panel;
  const T* const values = p.column_values == nullptr ? nullptr : p.column_values + j;
  std::int64_t row = 0;
  while (row < p.rows) {
    const int rows = tile_rows(p.rows - row);
    const T* const a = p.a + row * p.depth;
    T* const c = p.c + row * p.c_row + j;
    switch (rows) {
      case 6:
        packed_tile<V, 6, kVectors, kPartial>(p, a, b, c, values, last);
        break;
      case 5:
        packed_tile<V, 5, kVectors, kPartial>(p, a, b, c, values, last);
        break;
      case 4:
        packed_tile<V, 4, kVectors, kPartial>(p, a, b, c, values, last);
        break;
      case 3:
        packed_tile<V, 3, kVectors, kPartial>(p, a, b, c, values, last);
        break;
      case 2:
        packed_tile<V, 2, kVectors, kPartial>(p, a, b, c, values, last);
        break;
      default:
        packed_tile<V, 1, kVectors, kPartial>(p, a, b, c, values, last);
    }
    row += rows;
  }
}

template <class V, int kVectors>
void packed_vectors(const PackedBlock<typename V::Element>& p, std::int64_t j, std::int64_t last) {
  last < V::kWidth ? packed_rows<V, kVectors, true>(p, j, last)
                   : packed_rows<V, kVectors, false>(p, j, last);
}

template <class V>
void packed_block(const PackedBlock<typename V::Element>& p) {
  constexpr std::int64_t kColumns = V::kWidth * V::kVectors;
  for (std::int64_t j = 0; j < p.cols; j += kColumns) {
    const std::int64_t count = p.cols - j < kColumns ? p.cols - j : kColumns;
    const std::int64_t vectors = (count + V::kWidth - 1) / V::kWidth;
    const std::int64_t last = count - (vectors - 1) * V::kWidth;
    if constexpr (V::kVectors == 4) {
      if (vectors == 4) packed_vectors<V, 4>(p, j, last);
      if (vectors == 3) packed_vectors<V, 3>(p, j, last);
    }
    if (vectors == 2) packed_vectors<V, 2>(p, j, last);
    if (vectors == 1) packed_vectors<V, 1>(p, j, last);
  }
}

}  // namespace rematch::cpu::detail

#undef REMATCH_UNROLLED
