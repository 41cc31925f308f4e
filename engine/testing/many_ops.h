#pragma once

// Graphs of as many ops and operands as a test wants.

#include <cstddef>
#include <memory>
#include <span>

#include "engine/ops/activation.h"
#include "engine/ops/noise.h"
#include "engine/ops/support.h"

namespace rematch::testing {

/// A tensor of one element whose node hands the gradient that comes to each of the operands.
inline Tensor fan(const Tensors& operands) {
  struct FanBackward final : Node {
    FanBackward() : Node(1) {}
    std::string_view name() const override { return "FanBackward"; }
    void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
      for (Tensor& g : grads_in) g = grads_out[0];
    }
  };
  const auto node = std::make_shared<FanBackward>();
  for (const Tensor& t : operands) node->edges.push_back(gradient_edge(t));
  Tensor y = Tensor::ones({1}, DType::float64);
  set_history(y, node);
  return y;
}

/// A chain of n ops: two tanh, then a draw that leaves no element 0, and so on.
inline Tensor chain(std::size_t n, Tensor y) {
  for (std::size_t i = 0; i < n; ++i) y = i % 3 == 2 ? rrelu(y, 0.75, 1.25) : tanh(y);
  return y;
}

}  // namespace rematch::testing
