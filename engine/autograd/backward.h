#pragma once

#include <functional>
#include <span>

#include "engine/tensor/tensor.h"

namespace rematch {

struct BackwardOptions {
  /// Keep what the graph saved, so that it can be walked again.
  bool retain_graph = false;
  /// When not empty: accumulate into these leaves only, and walk only what leads to them.
  Tensors inputs = {};
};

/// Accumulates the gradient of sum_i <roots[i], grads[i]> into the .grad of every leaf that
/// requires grad. An undefined grads[i] means ones and needs a root of one element; an empty
/// `grads` means all undefined.
/// Throws std::invalid_argument for roots without history or misfit gradients, std::runtime_error
/// when the graph was already walked without retain_graph.
void backward(std::span<const Tensor> roots, std::span<const Tensor> grads = {},
              const BackwardOptions& options = {});
void backward(const Tensor& root, const BackwardOptions& options = {});

/// The gradients of sum_i <outputs[i], grads[i]> with respect to `inputs` (leaves or not), as
/// return values: no .grad is touched. An input that was not reached gets an undefined tensor.
Tensors grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
             std::span<const Tensor> grads = {}, bool retain_graph = false);

/// Identity of the backward pass that the calling thread is in (0: none). Nested passes have their
/// own.
std::uint64_t current_backward();

/// True when the running backward was asked for particular inputs (grad(), or options.inputs):
/// side effects on other leaves' .grad are then not wanted.
bool current_backward_is_partial();

/// Runs `callback` when the current backward pass ends, whether it ends well or not.
void at_end_of_backward(std::function<void()> callback);

}  // namespace rematch
