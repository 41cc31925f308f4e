#include <immintrin.h>

#include "engine/cpu/packed_tiles.h"

namespace rematch::cpu::detail {
namespace {

/// Loading 8 - count words in gives a mask of `count` leading ones.
alignas(32) constexpr std::int32_t kMaskWords[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                     0,  0,  0,  0,  0,  0,  0,  0};

__m256i leading_words(std::int64_t count) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMaskWords + 8 - count));
}

struct Float {
  using Element = float;
  using Reg = __m256;
  using Mask = __m256i;
  static constexpr std::int64_t kWidth = 8;
  static constexpr int kVectors = 2;

  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg load(const float* p, Mask mask) { return _mm256_maskload_ps(p, mask); }
  static void store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static void store(float* p, Mask mask, Reg v) { _mm256_maskstore_ps(p, mask, v); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Mask mask(std::int64_t count) { return leading_words(count); }
};

struct Double {
  using Element = double;
  using Reg = __m256d;
  using Mask = __m256i;
  static constexpr std::int64_t kWidth = 4;
  static constexpr int kVectors = 2;

  static Reg zero() { return _mm256_setzero_pd(); }
  static Reg broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  static Reg load(const double* p) { return _mm256_loadu_pd(p); }
  static Reg load(const double* p, Mask mask) { return _mm256_maskload_pd(p, mask); }
  static void store(double* p, Reg v) { _mm256_storeu_pd(p, v); }
  static void store(double* p, Mask mask, Reg v) { _mm256_maskstore_pd(p, mask, v); }
  static Reg add(Reg a, Reg b) { return _mm256_add_pd(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_pd(a, b, c); }
  static Mask mask(std::int64_t count) { return leading_words(2 * count); }
};

}  // namespace

const ChainKernel<float> kChainAvx2Float{chain_panel<Float>, packed_block<Float>, Float::kWidth,
                                         Float::kVectors};
const ChainKernel<double> kChainAvx2Double{chain_panel<Double>, packed_block<Double>,
                                           Double::kWidth, Double::kVectors};

}  // namespace rematch::cpu::detail
