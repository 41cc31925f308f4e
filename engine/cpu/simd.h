#pragma once

#include <immintrin.h>

#include <cstdint>

namespace rematch::cpu {

/// One 256-bit vector of T. Partial loads give zeros past `count`; partial stores leave memory past
/// it alone.
template <typename T>
struct Simd;

/// Loading 8 - count words in gives a mask of `count` leading ones.
alignas(32) inline constexpr std::int32_t kMaskWords[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                            0,  0,  0,  0,  0,  0,  0,  0};

template <>
struct Simd<float> {
  static constexpr std::int64_t kWidth = 8;
  using Reg = __m256;

  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static __m256i mask(std::int64_t count) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMaskWords + 8 - count));
  }
  static Reg load(const float* p, __m256i mask) { return _mm256_maskload_ps(p, mask); }
  static void store(float* p, __m256i mask, Reg v) { _mm256_maskstore_ps(p, mask, v); }

  /// ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)).
  static float sum(Reg v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

template <>
struct Simd<double> {
  static constexpr std::int64_t kWidth = 4;
  using Reg = __m256d;

  static Reg zero() { return _mm256_setzero_pd(); }
  static Reg broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  static Reg load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Reg v) { _mm256_storeu_pd(p, v); }
  static Reg add(Reg a, Reg b) { return _mm256_add_pd(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_pd(a, b, c); }
  static __m256i mask(std::int64_t count) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMaskWords + 8 - 2 * count));
  }
  static Reg load(const double* p, __m256i mask) { return _mm256_maskload_pd(p, mask); }
  static void store(double* p, __m256i mask, Reg v) { _mm256_maskstore_pd(p, mask, v); }

  /// (l0 + l2) + (l1 + l3).
  static double sum(Reg v) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
};

}  // namespace rematch::cpu
