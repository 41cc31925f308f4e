#include <immintrin.h>

#include "engine/cpu/philox_words.h"
#include "engine/random/philox.h"

namespace rematch::cpu {
namespace {

/// Four Philox counters, one in the low half of each 64-bit lane; the high halves hold leftovers,
/// which neither the multiplication nor the low half of an xor sees.
struct FourCounters {
  __m256i c0;
  __m256i c1;
  __m256i c2;
  __m256i c3;

  FourCounters(std::uint64_t subsequence, std::uint64_t first)
      : c0(_mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(first)),
                            _mm256_set_epi64x(3, 2, 1, 0))),
        c1(_mm256_srli_epi64(c0, 32)),
        c2(_mm256_set1_epi64x(static_cast<long long>(subsequence))),
        c3(_mm256_srli_epi64(c2, 32)) {}

  void round(__m256i k0, __m256i k1) {
    const __m256i p0 = _mm256_mul_epu32(c0, _mm256_set1_epi64x(kPhiloxM0));
    const __m256i p1 = _mm256_mul_epu32(c2, _mm256_set1_epi64x(kPhiloxM1));
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), k0);
    c1 = p1;
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), k1);
    c3 = p0;
  }

  /// The four blocks' words in order.
  void store(std::uint32_t* out) const {
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    // Lane b of `first` is words 0 and 1 of block b, of `second` words 2 and 3.
    const __m256i first = _mm256_or_si256(_mm256_and_si256(c0, low), _mm256_slli_epi64(c1, 32));
    const __m256i second = _mm256_or_si256(_mm256_and_si256(c2, low), _mm256_slli_epi64(c3, 32));
    const __m256i even = _mm256_unpacklo_epi64(first, second);
    const __m256i odd = _mm256_unpackhi_epi64(first, second);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                        _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8),
                        _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

}  // namespace

void detail::philox_words_avx2(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t first,
                               std::int64_t steps, std::uint32_t* out) {
  for (; steps > 0; --steps, first += 8, out += kPhiloxStep) {
    FourCounters a(subsequence, first);
    FourCounters b(subsequence, first + 4);
    auto k0 = static_cast<std::uint32_t>(seed);
    auto k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const __m256i keys0 = _mm256_set1_epi64x(k0);
      const __m256i keys1 = _mm256_set1_epi64x(k1);
      a.round(keys0, keys1);
      b.round(keys0, keys1);
      k0 += kPhiloxW0;
      k1 += kPhiloxW1;
    }
    a.store(out);
    b.store(out + 16);
  }
}

}  // namespace rematch::cpu
