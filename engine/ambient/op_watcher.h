#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "engine/math/dtype.h"

namespace rematch {

class Tensor;

/// An op that is about to run: what it is and all that decides its results.
struct OpCall {
  std::string_view op;
  /// Some may be undefined.
  std::initializer_list<const Tensor*> operands;
  /// Hash of the arguments that are no tensors; see attributes().
  std::uint64_t attributes = 0;
  /// Its results are new tensors, and may be kept instead of computed again. Not so for ops that
  /// work in place and for views.
  bool makes_tensors = true;
  /// The dtype of the operands as it reads them, where autocast may have cast them.
  std::optional<DType> computes_in = std::nullopt;
};

/// Sees every op that runs while it is the ambient one, and may supply results that it kept.
class OpWatcher {
 public:
  virtual ~OpWatcher() = default;
  /// Before the op computes. True: `results` are filled in, and it does not compute. May throw.
  virtual bool recall(const OpCall& call, std::span<Tensor> results) = 0;
  /// The results, none of them with a history yet, computed or recalled.
  virtual void done(const OpCall& call, std::span<const Tensor> results) = 0;
  /// Instead of done(): the op threw.
  virtual void failed(const OpCall& call) noexcept = 0;
  /// `t` is read by something that is no op: a clone, a cast.
  virtual void read(const Tensor& t) = 0;
};

/// Mixes numbers into one hash.
template <class... Numbers>
constexpr std::uint64_t attributes(Numbers... numbers) {
  std::uint64_t hash = 0;
  const auto mix = [&](auto number) {
    if constexpr (std::is_floating_point_v<decltype(number)>) {
      hash ^= std::bit_cast<std::uint64_t>(static_cast<double>(number));
    } else {
      hash ^= static_cast<std::uint64_t>(number);
    }
    hash *= 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  };
  (mix(numbers), ...);
  return hash;
}

}  // namespace rematch
