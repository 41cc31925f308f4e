// Compiled for AVX-512 in every build (engine/CMakeLists.txt) and run where the CPU has it.
#include <immintrin.h>

#include "engine/cpu/philox_words.h"
#include "engine/random/philox.h"

namespace rematch::cpu {
namespace {

/// Eight Philox counters, one in the low half of each 64-bit lane; the high halves hold leftovers,
/// which neither the multiplication nor the low half of an xor sees.
struct EightCounters {
  __m512i c0;
  __m512i c1;
  __m512i c2;
  __m512i c3;

  EightCounters() = default;
  EightCounters(std::uint64_t subsequence, std::uint64_t first)
      : c0(_mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(first)),
                            _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0))),
        c1(shifted(c0)),
        c2(_mm512_set1_epi64(static_cast<long long>(subsequence))),
        c3(shifted(c2)) {}

  void round(__m512i k0, __m512i k1) {
    constexpr int kXorOfThree = 0x96;
    const __m512i p0 = product(c0, _mm512_set1_epi64(kPhiloxM0));
    const __m512i p1 = product(c2, _mm512_set1_epi64(kPhiloxM1));
    c0 = _mm512_ternarylogic_epi64(shifted(p1), c1, k0, kXorOfThree);
    c1 = p1;
    c2 = _mm512_ternarylogic_epi64(shifted(p0), c3, k1, kXorOfThree);
    c3 = p0;
  }

  /// The eight blocks' words in order.
  void store(std::uint32_t* out) const {
    // Lane b of `first` is words 0 and 1 of block b, of `second` words 2 and 3.
    const __m512i first = pair(c0, c1);
    const __m512i second = pair(c2, c3);
    const __m512i low = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i high = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(first, low, second));
    _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi64(first, high, second));
  }

 private:
  // The forms with a mask, for those without one start from a register that g++ 12 warns of.
  static constexpr __mmask8 kAll = 0xff;
  static __m512i shifted(__m512i v) { return _mm512_maskz_srli_epi64(kAll, v, 32); }
  static __m512i product(__m512i a, __m512i b) { return _mm512_maskz_mul_epu32(kAll, a, b); }
  static __m512i pair(__m512i low, __m512i high) {
    return _mm512_mask_blend_epi32(0xaaaa, low, _mm512_maskz_slli_epi64(kAll, high, 32));
  }
};

/// kSets times eight blocks side by side, since one round waits for the one before.
template <int kSets>
void draw(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t first, std::uint32_t* out) {
  EightCounters sets[kSets];
  for (int i = 0; i < kSets; ++i) {
    sets[i] = EightCounters(subsequence, first + 8 * static_cast<std::uint64_t>(i));
  }
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const __m512i keys0 = _mm512_set1_epi64(k0);
    const __m512i keys1 = _mm512_set1_epi64(k1);
    for (EightCounters& set : sets) set.round(keys0, keys1);
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  for (int i = 0; i < kSets; ++i) sets[i].store(out + i * kPhiloxStep);
}

}  // namespace

void detail::philox_words_avx512(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t first,
                                 std::int64_t steps, std::uint32_t* out) {
  for (; steps >= 4; steps -= 4, first += 32, out += 4 * kPhiloxStep) {
    draw<4>(seed, subsequence, first, out);
  }
  for (; steps > 0; --steps, first += 8, out += kPhiloxStep) draw<1>(seed, subsequence, first, out);
}

}  // namespace rematch::cpu
