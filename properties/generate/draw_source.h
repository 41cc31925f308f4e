#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/random/philox.h"

namespace rematch {

/// The random choices of one generated case: a Philox stream addressed by (seed, case number), so
/// that the choices are the same on every machine.
class DrawSource {
 public:
  DrawSource(std::uint64_t seed, std::uint64_t index) : stream_{seed, index} {}

  std::uint32_t word() {
    if (next_ == kBlock) {
      stream_.block(block_++, words_.data());
      next_ = 0;
    }
    return words_[next_++];
  }

  /// An integer in [0, n), 1 <= n < 2^32; the bias is below n / 2^32.
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{word()} * n) >> 32);
  }

  /// An integer in [low, high].
  int range(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::uint32_t>(high - low + 1)));
  }

  /// true in `percent` of 100 draws.
  bool chance(double percent) { return word() < percent * (0x1p32 / 100); }

  template <class T, std::size_t N>
  const T& pick(const std::array<T, N>& choices) {
    return choices[below(N)];
  }

  /// Position i with probability weights[i] / their sum; at least one is positive.
  template <std::size_t N>
  std::size_t weighted(const std::array<int, N>& weights) {
    int sum = 0;
    for (const int w : weights) sum += w;
    int left = static_cast<int>(below(static_cast<std::uint32_t>(sum)));
    std::size_t i = 0;
    while (left >= weights[i]) left -= weights[i++];
    return i;
  }

 private:
  static constexpr std::size_t kBlock = 4;
  PhiloxStream stream_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, kBlock> words_{};
  std::size_t next_ = kBlock;
};

}  // namespace rematch
