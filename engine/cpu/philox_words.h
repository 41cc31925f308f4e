#pragma once

#include <cstdint>

#include "engine/cpu/chain.h"

namespace rematch::cpu {

/// Words that a PhiloxWords writes at a time.
inline constexpr std::int64_t kPhiloxStep = 32;

/// Writes steps * kPhiloxStep words of a stream, from block `first` on, in order.
using PhiloxWords = void (*)(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t first,
                             std::int64_t steps, std::uint32_t* out);

namespace detail {
void philox_words_avx2(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t first,
                       std::int64_t steps, std::uint32_t* out);
void philox_words_avx512(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t first,
                         std::int64_t steps, std::uint32_t* out);
}  // namespace detail

/// The same words for every instruction set.
inline PhiloxWords philox_words(Vectors vectors) {
  return vectors == Vectors::avx512 ? detail::philox_words_avx512 : detail::philox_words_avx2;
}

}  // namespace rematch::cpu
