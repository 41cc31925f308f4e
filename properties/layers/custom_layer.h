#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/shape.h"

namespace rematch {

/// One extent in a declaration: "N", "3" or "2C".
struct SymbolicExtent {
  std::int64_t factor = 1;
  /// 'A'..'Z'; 0: the factor alone.
  char name = 0;
};

/// A layer that only the subject knows, as it declares it:
///
///     "gru: N C -> N 2C; parameters, draws"
///
/// has the name, the shape that it takes, the shape that it returns, and what else the harness must
/// know. Both shapes have rank 2 to 4 and begin with the same letter, the batch. Letters stand for
/// any extent, and the same letter for the same extent; "2C" in the operand's shape takes even
/// extents only. "N ... -> N ..." takes any of these shapes and returns the same.
struct CustomLayer {
  std::string declaration;
  std::string name;
  /// Both are "N" alone with `any_shape`.
  std::vector<SymbolicExtent> operand;
  std::vector<SymbolicExtent> result;
  bool any_shape = false;
  bool parameters = false;
  /// In training, from the default random stream, or (`draws_elsewhere`) from any other.
  bool draws = false;
  bool draws_elsewhere = false;
  /// A training forward changes buffers.
  bool state = false;
  /// Its forward runs a backward.
  bool backward = false;

  /// The extents that the layer returns for an operand of shape x; none if it does not take x.
  std::vector<std::int64_t> result_for(const Shape& x) const;

  /// The name without its last part: "nn.GRU" of "nn.GRU.3".
  std::string_view family() const { return std::string_view(name).substr(0, name.rfind('.')); }
};

/// The layer of that declaration, the same object for the same text, for the lifetime of the
/// program. Throws std::invalid_argument with what is wrong with the text.
const CustomLayer* declared(std::string_view declaration);

inline std::string_view to_string(const CustomLayer* layer) {
  return layer == nullptr ? std::string_view() : std::string_view(layer->declaration);
}

inline constexpr std::size_t kLongestDeclaration = 200;

}  // namespace rematch
