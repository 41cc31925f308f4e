#pragma once

#include <cstdint>
#include <span>

#include "properties/case/case.h"
#include "properties/case/geometry.h"

namespace rematch {

enum class SavesInput : std::uint8_t { never, for_weight_gradient, always };

/// What a layer does to graph, memory and random stream, whatever its numbers are.
///
/// A layer that records (grad mode on, an operand or a parameter requires grad) saves, in this
/// order and after its kernel has run:
///
///     layer             saves
///     linear, conv2d    x if the weight requires grad, weight if x requires grad
///     max_pool2d        index of each maximum, int32
///     batch_norm        x, mean[C], 1 / std[C], weight if x requires grad (train and eval alike)
///     layer_norm        x, mean[rows], 1 / std[rows], weight if x requires grad
///     gelu              x
///     rrelu             its noise in training; x in eval
///     relu, tanh, sigmoid, softmax    their output
///     dropout           its mask, uint8
///     all others        nothing
///
/// x and weight as they are after a cast (autocast); casts save nothing.
///
/// dropout and gaussian_noise without effect (eval, or p = 0), a flatten of rank 2 and duplicate
/// are identities: they return the very tensor that they got.
struct LayerRule {
  bool identity = false;
  /// The output has a history of its own but lies in the operand's storage.
  bool aliases_input = false;
  /// Has parameters that require grad.
  bool trainable = false;
  SavesInput saves_input = SavesInput::never;
  /// Only for the gradient of x, hence if x requires grad.
  bool saves_weight = false;
  bool saves_output = false;
  /// Saved beside operands and outputs: masks, indices, statistics.
  std::int64_t extra_bytes = 0;
  int outputs = 1;
  std::int64_t output_bytes[2] = {0, 0};
  /// Computes in bfloat16: operands and parameters are cast down first, the output is bfloat16. All
  /// other layers that compute cast a bfloat16 operand up to float32 first.
  bool low = false;
  /// Elements of the operands, and of the weight.
  std::int64_t operand_elements[2] = {0, 0};
  std::int64_t weight_elements = 0;
  /// Makes its outputs by an op: one execution computes once, unless the results are recalled.
  bool computes = false;
  int stream = 0;
  /// Random words that one execution draws: its elements, rounded up to whole Philox blocks of 4.
  std::uint64_t words = 0;
  /// Values that it reads, by value_index(); -1: none.
  int operands[2] = {-1, -1};
  std::span<const int> parameters;
};

/// Dense numbering of the values of a model; the model input is 0.
constexpr int value_index(ValueRef value) { return 2 * (value.layer + 1) + value.output; }

LayerRule rule_of(const Case& c, const Geometry& geometry, int layer);

}  // namespace rematch
