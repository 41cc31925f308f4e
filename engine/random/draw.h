#pragma once

// Draws that the random kernels make of a Philox word, for every backend.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/math/elementary.h"
#include "engine/math/host_device.h"
#include "engine/random/philox.h"

namespace rematch::math {

/// uniform_float or uniform_double of a word.
template <typename T>
REMATCH_HD inline T uniform(std::uint32_t word) {
  if constexpr (std::is_same_v<T, float>) {
    return uniform_float(word);
  } else {
    return uniform_double(word);
  }
}

/// The factor of the elements that dropout keeps.
template <typename T>
REMATCH_HD inline T dropout_factor(double p) {
  return static_cast<T>(1.0 / (1.0 - p));
}

/// x * factor where kept, +0 elsewhere.
template <typename T>
REMATCH_HD inline T dropout(T x, T factor, bool kept) {
  const T scaled = x * factor;
  return kept ? scaled : T(0);
}

/// 1 where x >= 0, else lower + span * u.
template <typename T>
REMATCH_HD inline T rrelu_noise(T x, T lower, T span, std::uint32_t word) {
  const T slope = std::fma(span, uniform<T>(word), lower);
  return x >= T(0) ? T(1) : slope;
}

/// lo + span * u.
template <typename T>
REMATCH_HD inline T uniform_between(T lo, T span, std::uint32_t word) {
  return std::fma(span, uniform<T>(word), lo);
}

/// centre + deviation * z.
template <typename T>
REMATCH_HD inline T normal_around(T centre, T deviation, double z) {
  return std::fma(deviation, static_cast<T>(z), centre);
}

/// The pair of standard normals of two words.
REMATCH_HD inline CosSin normal_pair(std::uint32_t first, std::uint32_t second) {
  return box_muller(uniform_double(first), uniform_double(second));
}

/// The words of elements 4 * group .. 4 * group + 3 of a draw that starts at word `offset`, in
/// words[0..4): one Philox block where offset is a multiple of 4, else parts of two.
REMATCH_HD inline void group_words(const PhiloxStream& stream, std::uint64_t offset,
                                   std::uint64_t group, std::uint32_t* words) {
  const std::uint64_t block = offset / 4 + group;
  const auto skip = static_cast<unsigned>(offset % 4);
  stream.block(block, words);
  if (skip == 0) return;
  std::uint32_t next[4] = {};
  stream.block(block + 1, next);
  // Chosen by value: a register array has no addresses on the device.
  const std::uint32_t w1 = words[1];
  const std::uint32_t w2 = words[2];
  const std::uint32_t w3 = words[3];
  words[0] = skip == 1 ? w1 : skip == 2 ? w2 : w3;
  words[1] = skip == 1 ? w2 : skip == 2 ? w3 : next[0];
  words[2] = skip == 1 ? w3 : skip == 2 ? next[0] : next[1];
  words[3] = skip == 1 ? next[0] : skip == 2 ? next[1] : next[2];
}

}  // namespace rematch::math
