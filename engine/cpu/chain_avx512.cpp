// Compiled for AVX-512 in every build (engine/CMakeLists.txt) and run where the CPU has it.
#include <immintrin.h>

#include "engine/cpu/packed_tiles.h"

namespace rematch::cpu::detail {
namespace {

struct Float {
  using Element = float;
  using Reg = __m512;
  using Mask = __mmask16;
  static constexpr std::int64_t kWidth = 16;
  static constexpr int kVectors = 4;

  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static Reg load(const float* p, Mask mask) { return _mm512_maskz_loadu_ps(mask, p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static void store(float* p, Mask mask, Reg v) { _mm512_mask_storeu_ps(p, mask, v); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Mask mask(std::int64_t count) { return static_cast<Mask>((1U << count) - 1); }
};

struct Double {
  using Element = double;
  using Reg = __m512d;
  using Mask = __mmask8;
  static constexpr std::int64_t kWidth = 8;
  static constexpr int kVectors = 4;

  static Reg zero() { return _mm512_setzero_pd(); }
  static Reg broadcast(const double* p) { return _mm512_set1_pd(*p); }
  static Reg load(const double* p) { return _mm512_loadu_pd(p); }
  static Reg load(const double* p, Mask mask) { return _mm512_maskz_loadu_pd(mask, p); }
  static void store(double* p, Reg v) { _mm512_storeu_pd(p, v); }
  static void store(double* p, Mask mask, Reg v) { _mm512_mask_storeu_pd(p, mask, v); }
  static Reg add(Reg a, Reg b) { return _mm512_add_pd(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_pd(a, b, c); }
  static Mask mask(std::int64_t count) { return static_cast<Mask>((1U << count) - 1); }
};

}  // namespace

const ChainKernel<float> kChainAvx512Float{chain_panel<Float>, packed_block<Float>, Float::kWidth,
                                           Float::kVectors};
const ChainKernel<double> kChainAvx512Double{chain_panel<Double>, packed_block<Double>,
                                             Double::kWidth, Double::kVectors};

}  // namespace rematch::cpu::detail
