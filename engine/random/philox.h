#pragma once

#include <array>
#include <cstdint>

#include "engine/math/host_device.h"

namespace rematch {

inline constexpr std::uint32_t kPhiloxM0 = 0xD2511F53U;
inline constexpr std::uint32_t kPhiloxM1 = 0xCD9E8D57U;
inline constexpr std::uint32_t kPhiloxW0 = 0x9E3779B9U;
inline constexpr std::uint32_t kPhiloxW1 = 0xBB67AE85U;

/// One block of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011), written to out[0..4).
REMATCH_HD constexpr void philox4x32_10(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                        std::uint32_t c3, std::uint32_t k0, std::uint32_t k1,
                                        std::uint32_t* out) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxM0} * c0;
    const std::uint64_t p1 = std::uint64_t{kPhiloxM1} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/// The same block by value.
constexpr std::array<std::uint32_t, 4> philox4x32_10(const std::array<std::uint32_t, 4>& counter,
                                                     const std::array<std::uint32_t, 2>& key) {
  std::uint32_t out[4] = {};
  philox4x32_10(counter[0], counter[1], counter[2], counter[3], key[0], key[1], out);
  return {out[0], out[1], out[2], out[3]};
}

/// A stream of 2^66 words addressed by position, laid out as cuRAND's curand_init(seed,
/// subsequence, offset) lays it out: key = (low, high) of seed, counter = (low, high of block; low,
/// high of subsequence), block = position / 4.
struct PhiloxStream {
  std::uint64_t seed = 0;
  std::uint64_t subsequence = 0;

  /// The four words at positions 4 * index .. 4 * index + 3, written to out.
  REMATCH_HD constexpr void block(std::uint64_t index, std::uint32_t* out) const {
    philox4x32_10(static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(subsequence),
                  static_cast<std::uint32_t>(subsequence >> 32), static_cast<std::uint32_t>(seed),
                  static_cast<std::uint32_t>(seed >> 32), out);
  }

  /// The word at a position.
  [[nodiscard]] REMATCH_HD constexpr std::uint32_t word(std::uint64_t position) const {
    std::uint32_t out[4] = {};
    block(position / 4, out);
    return out[position % 4];
  }
};

/// word * 2^-32 + 2^-33 in float, in (0, 1]: cuRAND's curand_uniform. The product is exact, so an
/// fma gives the same bits.
REMATCH_HD constexpr float uniform_float(std::uint32_t word) {
  return static_cast<float>(word) * 0x1p-32F + 0x1p-33F;
}

/// (word + 1/2) * 2^-32, exact in double, in (0, 1).
REMATCH_HD constexpr double uniform_double(std::uint32_t word) {
  return static_cast<double>(word) * 0x1p-32 + 0x1p-33;
}

/// How many of the 2^32 words w have (w + 1/2) * 2^-32 <= 1 - p: dropout keeps an element exactly
/// when its word is below this. An integer test, so every device decides alike.
REMATCH_HD constexpr std::uint64_t keep_threshold(double p) {
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): a floor is meant, and the sum is exact.
  return static_cast<std::uint64_t>((1.0 - p) * 0x1p32 + 0.5);
}

}  // namespace rematch
