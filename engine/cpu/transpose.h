#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace rematch::cpu {

namespace detail {

/// Rows of an 8 x 8 block become columns.
inline void transpose_registers(__m256* r) {
  const __m256 s0 = _mm256_unpacklo_ps(r[0], r[1]);
  const __m256 s1 = _mm256_unpackhi_ps(r[0], r[1]);
  const __m256 s2 = _mm256_unpacklo_ps(r[2], r[3]);
  const __m256 s3 = _mm256_unpackhi_ps(r[2], r[3]);
  const __m256 s4 = _mm256_unpacklo_ps(r[4], r[5]);
  const __m256 s5 = _mm256_unpackhi_ps(r[4], r[5]);
  const __m256 s6 = _mm256_unpacklo_ps(r[6], r[7]);
  const __m256 s7 = _mm256_unpackhi_ps(r[6], r[7]);
  const __m256 t0 = _mm256_shuffle_ps(s0, s2, 0x44);
  const __m256 t1 = _mm256_shuffle_ps(s0, s2, 0xee);
  const __m256 t2 = _mm256_shuffle_ps(s1, s3, 0x44);
  const __m256 t3 = _mm256_shuffle_ps(s1, s3, 0xee);
  const __m256 t4 = _mm256_shuffle_ps(s4, s6, 0x44);
  const __m256 t5 = _mm256_shuffle_ps(s4, s6, 0xee);
  const __m256 t6 = _mm256_shuffle_ps(s5, s7, 0x44);
  const __m256 t7 = _mm256_shuffle_ps(s5, s7, 0xee);
  r[0] = _mm256_permute2f128_ps(t0, t4, 0x20);
  r[1] = _mm256_permute2f128_ps(t1, t5, 0x20);
  r[2] = _mm256_permute2f128_ps(t2, t6, 0x20);
  r[3] = _mm256_permute2f128_ps(t3, t7, 0x20);
  r[4] = _mm256_permute2f128_ps(t0, t4, 0x31);
  r[5] = _mm256_permute2f128_ps(t1, t5, 0x31);
  r[6] = _mm256_permute2f128_ps(t2, t6, 0x31);
  r[7] = _mm256_permute2f128_ps(t3, t7, 0x31);
}

/// Rows of an 8 x 8 block become columns.
inline void transpose_block(const float* from, std::int64_t from_row, float* to,
                            std::int64_t to_row) {
  __m256 r[8];
  for (int i = 0; i < 4; ++i) {
    const float* p = from + i * from_row;
    // Row i beside row i + 4, by halves, so that what is left to do stays within halves.
    const float* q = p + 4 * from_row;
    r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
    r[i + 4] =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4)), _mm_loadu_ps(q + 4), 1);
  }
  for (int half = 0; half < 2; ++half) {
    const __m256* s = r + 4 * half;
    const __m256 low01 = _mm256_unpacklo_ps(s[0], s[1]);
    const __m256 high01 = _mm256_unpackhi_ps(s[0], s[1]);
    const __m256 low23 = _mm256_unpacklo_ps(s[2], s[3]);
    const __m256 high23 = _mm256_unpackhi_ps(s[2], s[3]);
    float* t = to + 4 * half * to_row;
    _mm256_storeu_ps(t, _mm256_shuffle_ps(low01, low23, 0x44));
    _mm256_storeu_ps(t + to_row, _mm256_shuffle_ps(low01, low23, 0xee));
    _mm256_storeu_ps(t + 2 * to_row, _mm256_shuffle_ps(high01, high23, 0x44));
    _mm256_storeu_ps(t + 3 * to_row, _mm256_shuffle_ps(high01, high23, 0xee));
  }
}

}  // namespace detail

/// to[c,r] = from[r,c] for `rows` rows and `cols` columns, rows from_row and to_row elements apart.
template <typename T>
void transpose(std::int64_t rows, std::int64_t cols, const T* from, std::int64_t from_row, T* to,
               std::int64_t to_row) {
  const auto scalar = [=](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
    for (std::int64_t c = c0; c < c1; ++c) {
      for (std::int64_t r = r0; r < r1; ++r) to[c * to_row + r] = from[r * from_row + c];
    }
  };
  if constexpr (sizeof(T) == sizeof(float)) {
    const std::int64_t full_rows = rows / 8 * 8;
    const std::int64_t full_cols = cols / 8 * 8;
    const auto block = [=](std::int64_t r, std::int64_t c) {
      detail::transpose_block(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
    };
    // Whole cache lines of the side whose rows lie far apart, which compete for the same sets.
    if (from_row > to_row) {
      for (std::int64_t r0 = 0; r0 < full_rows; r0 += 16) {
        const std::int64_t next = std::min(rows, r0 + 32);
        for (std::int64_t c = 0; c < full_cols; c += 8) {
          // More streams than a CPU follows by itself: ask for the rows that come next.
          for (std::int64_t r = r0 + 16; c % 16 == 0 && r < next; ++r) {
            __builtin_prefetch(from + r * from_row + c);
          }
          for (std::int64_t r = r0; r < std::min(full_rows, r0 + 16); r += 8) block(r, c);
        }
      }
    } else {
      for (std::int64_t c = 0; c < full_cols; c += 8) {
        for (std::int64_t r = 0; r < full_rows; r += 8) block(r, c);
      }
    }
    scalar(full_rows, rows, 0, full_cols);
    scalar(0, rows, full_cols, cols);
  } else {
    scalar(0, rows, 0, cols);
  }
}

}  // namespace rematch::cpu
