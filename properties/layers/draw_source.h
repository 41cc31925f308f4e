#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/random/philox.h"
#include "properties/layers/scope.h"

namespace rematch {

/// The random choices of one generated case: a Philox stream addressed by (seed, case number), so
/// that the choices are the same on every machine.
class DrawSource {
 public:
  /// `scope`: what the case may have. Must outlive this.
  DrawSource(std::uint64_t seed, std::uint64_t index, const Scope& scope = everything())
      : stream_{seed, index}, scope_(scope) {}

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
  /// The same, and false where the case may not have `feature`. It draws in any case, so that a
  /// restriction changes as little else as possible.
  bool chance(double percent, Feature feature) { return chance(percent) && may(feature); }
  bool may(Feature feature) const { return scope_.features.contains(feature); }
  /// The layers of the subject's own.
  std::span<const CustomLayer* const> custom_layers() const { return scope_.custom; }
  /// Takes one of two alternatives, the first in `percent` of 100 draws, where the case may have
  /// both; else the one that it may have.
  bool first(double percent, Feature one, Feature other) {
    return (chance(percent) && may(one)) || !may(other);
  }

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

  /// One of the layer kinds that the case may have, by weight; if there are none, of all.
  LayerKind weighted_kind(const std::array<int, kLayerKinds>& weights) {
    std::array<int, kLayerKinds> allowed = weights;
    bool any = false;
    for (std::size_t i = 0; i < kLayerKinds; ++i) {
      if (!may(feature_of(static_cast<LayerKind>(i)))) allowed[i] = 0;
      any = any || allowed[i] > 0;
    }
    return static_cast<LayerKind>(weighted(any ? allowed : weights));
  }

  /// The same among those that the case may have by `features`; if there are none, among all.
  template <std::size_t N>
  std::size_t weighted(const std::array<int, N>& weights, const std::array<Feature, N>& features) {
    std::array<int, N> allowed = weights;
    for (std::size_t i = 0; i < N; ++i) allowed[i] = may(features[i]) ? weights[i] : 0;
    const bool any = std::any_of(allowed.begin(), allowed.end(), [](int w) { return w > 0; });
    return weighted(any ? allowed : weights);
  }

 private:
  static constexpr std::size_t kBlock = 4;
  PhiloxStream stream_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, kBlock> words_{};
  std::size_t next_ = kBlock;
  const Scope& scope_;
};

}  // namespace rematch
