#pragma once

#include <cstdint>

#include "properties/case/case.h"
#include "properties/case/geometry.h"

namespace rematch {

/// What a layer's backward does with memory.
enum class Vjp : std::uint8_t {
  /// Reads back everything that was saved, then makes one gradient per operand that needs one.
  pointwise,
  /// linear and conv2d: one operand after the other, each with the saved tensor that it needs;
  /// bfloat16 is widened first, and each gradient is rounded.
  product,
  /// Hands the gradient that it got to every operand.
  share,
  /// Takes zeros for an output without gradient (split).
  join,
};

/// What a layer asks of memory beside the results of its op (LayerRule has those).
struct ByteRule {
  Vjp vjp = Vjp::pointwise;
  /// In elements: the operands, the outputs, weight and bias.
  std::int64_t operands[2] = {0, 0};
  std::int64_t outputs[2] = {0, 0};
  std::int64_t parameters[2] = {0, 0};
  /// Workspace that a convolution's kernels ask for, forward and backward alike, in elements.
  std::int64_t scratch = 0;
  /// Where the second operand lies among the values that are live before the layer; -1: none.
  int other = -1;
  /// Tensors saved beside operands and outputs, all of one size (LayerRule::extra_bytes in all).
  int extras = 0;
};

/// `host_kernels`: convolutions run on the CPU, with workspace from the ledger; a device has its
/// own.
ByteRule byte_rule_of(const Case& c, const Geometry& geometry, int layer, bool host_kernels);

}  // namespace rematch
