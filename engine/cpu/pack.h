#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/cpu/packed.h"
#include "engine/cpu/product.h"
#include "engine/cpu/transpose.h"

namespace rematch::cpu {

namespace detail {

/// Rows of a that lie apart, kRows elements for each k.
template <int kRows, typename T>
void interleave(const Strided<T>& a, std::int64_t depth, T* packed) {
  std::int64_t k = 0;
  if constexpr (sizeof(T) == sizeof(float)) {
    for (; k + 8 <= depth; k += 8) {
      float* const to = packed + k * kRows;
      const float* from = a.data + k;
      __m256 r[8];
      for (int i = 0; i < 8; ++i) {
        r[i] = i < kRows ? _mm256_loadu_ps(from + i * a.row) : _mm256_setzero_ps();
      }
      transpose_registers(r);
      // Lanes that go too far are overwritten by those that follow. Past the end may stand lanes
      // that another thread packed.
      const bool more = (depth - k - 8) * kRows >= 8 - kRows;
      for (int i = 0; i < 8; ++i) {
        if (more || i * kRows + 8 <= 8 * kRows) {
          _mm256_storeu_ps(to + i * kRows, r[i]);
        } else {
          std::memcpy(to + i * kRows, &r[i], kRows * sizeof(float));
        }
      }
    }
  }
  for (; k < depth; ++k) {
    for (int i = 0; i < kRows; ++i) packed[k * kRows + i] = a.data[i * a.row + k];
  }
}

/// The same where the rows of a lie side by side.
template <int kRows, typename T>
void gather(const Strided<T>& a, std::int64_t depth, T* packed) {
  for (std::int64_t k = 0; k < depth; ++k) {
    std::memcpy(packed + k * kRows, a.data + k * a.col, kRows * sizeof(T));
  }
}

template <int kRows, typename T>
void pack_tile(const Strided<T>& a, std::int64_t depth, T* packed) {
  a.col == 1 ? interleave<kRows>(a, depth, packed) : gather<kRows>(a, depth, packed);
}

template <typename T>
void copy_n(const T* from, std::int64_t count, T* to) {
  std::memcpy(to, from, sizeof(T) * static_cast<std::size_t>(count));
}

template <typename T>
void pack_tile(std::int64_t rows, const Strided<T>& a, std::int64_t depth, T* packed) {
  switch (rows) {
    case 6:
      return pack_tile<6>(a, depth, packed);
    case 5:
      return pack_tile<5>(a, depth, packed);
    case 4:
      return pack_tile<4>(a, depth, packed);
    case 3:
      return pack_tile<3>(a, depth, packed);
    case 2:
      return pack_tile<2>(a, depth, packed);
    default:
      return pack_tile<1>(a, depth, packed);
  }
}

}  // namespace detail

/// a[rows,depth] for a PackedBlock.
template <typename T>
void pack_rows(std::int64_t rows, std::int64_t depth, const Strided<T>& a, T* packed) {
  // Where rows lie side by side, a piece of all of them before the next piece.
  const std::int64_t piece = a.col == 1 ? depth : 16;
  for (std::int64_t k = 0; k < depth; k += piece) {
    const std::int64_t count = std::min(piece, depth - k);
    for (std::int64_t i = 0; i < rows;) {
      const std::int64_t height = tile_rows(rows - i);
      detail::pack_tile<T>(height, {a.data + i * a.row + k * a.col, a.row, a.col}, count,
                           packed + i * depth + k * height);
      i += height;
    }
  }
}

/// b[depth,cols] for a PackedBlock whose panels have `columns`, which fill whole cache lines.
template <typename T>
void pack_columns(std::int64_t depth, std::int64_t cols, const Strided<T>& b, std::int64_t columns,
                  std::int64_t panel, T* packed) {
  const std::int64_t full = cols / columns * columns;
  if (b.col != 1) {
    // Columns of b are rows in memory.
    for (std::int64_t j = 0; j < cols; j += columns, packed += panel) {
      if (j == full) std::fill_n(packed, depth * columns, T(0));
      transpose(std::min(columns, cols - j), depth, b.data + j * b.col, b.col, packed, columns);
    }
    return;
  }
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));
  constexpr std::int64_t kSome = 8;
  for (std::int64_t k0 = 0; k0 < depth; k0 += kSome) {
    const std::int64_t k1 = std::min(depth, k0 + kSome);
    T* to = packed;
    for (std::int64_t j = 0; j < full; j += columns, to += panel) {
      // Whole cache lines, without a call for each.
      for (std::int64_t k = k0; k < k1; ++k) {
        const T* const from = b.data + k * b.row + j;
        // Rows that lie far apart are more streams than a CPU follows by itself.
        __builtin_prefetch(from + kSome * b.row);
        for (std::int64_t at = 0; at < columns; at += kLine) {
          std::memcpy(to + k * columns + at, from + at, 64);
        }
      }
    }
    for (std::int64_t k = k0; full < cols && k < k1; ++k) {
      std::fill_n(to + k * columns, columns, T(0));
      detail::copy_n(b.data + k * b.row + full, cols - full, to + k * columns);
    }
  }
}

}  // namespace rematch::cpu
