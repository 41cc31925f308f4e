#include "scenarios/support/recomputation_steps.h"

#include <memory>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/autograd/saved_tensor.h"

namespace rematch::scenarios {
namespace {

class HandmadeBackward final : public Node {
 public:
  HandmadeBackward(int outputs, Function function, const Tensors& inputs, RecomputationSteps steps)
      : Node(outputs), function_(std::move(function)), steps_(std::move(steps)), inputs_(inputs) {
    saved_.resize(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      edges.push_back(gradient_edge(inputs[i]));
      saved_[i].save(inputs[i]);
    }
  }
  std::string_view name() const override { return "HandmadeBackward"; }
  void release() noexcept override {
    function_ = nullptr;
    inputs_.clear();
    saved_.clear();
  }

  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const GradMode grad(true);
    const Tensors bound = steps_.bind(inputs_);
    const Tensors outputs = function_(bound);
    Tensors roots;
    Tensors gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!grads_out[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      gradients.push_back(grads_out[i]);
    }
    const Tensors result = steps_.differentiate(roots, gradients, bound);
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (needs(i)) grads_in[i] = result[i];
    }
  }

 private:
  Function function_;
  RecomputationSteps steps_;
  /// With their history, for steps that want it.
  Tensors inputs_;
  /// So that the ledger counts them as saved.
  std::vector<SavedTensor> saved_;
};

}  // namespace

RecomputationSteps right_steps() {
  RecomputationSteps steps;
  steps.bind = [](const Tensors& inputs) {
    Tensors bound;
    for (const Tensor& t : inputs) {
      bound.push_back(t.detach());
      if (t.requires_grad()) bound.back().set_requires_grad(true);
    }
    return bound;
  };
  steps.differentiate = [](const Tensors& outputs, const Tensors& gradients, const Tensors& bound) {
    backward(outputs, gradients);
    Tensors result;
    for (const Tensor& t : bound) result.push_back(t.grad());
    return result;
  };
  return steps;
}

Tensors handmade_checkpoint(const Function& function, const Tensors& inputs,
                            const RecomputationSteps& steps) {
  if (!ambient().grad_enabled) return function(inputs);
  bool any = false;
  for (const Tensor& t : inputs) any = any || t.requires_grad();
  Tensors outputs;
  {
    const GradMode no_grad(false);
    outputs = function(inputs);
  }
  for (Tensor& t : outputs) t = t.detach();
  if (!any) return outputs;
  const auto node =
      std::make_shared<HandmadeBackward>(static_cast<int>(outputs.size()), function, inputs, steps);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (is_floating(outputs[i].dtype())) set_history(outputs[i], node, static_cast<int>(i));
  }
  return outputs;
}

}  // namespace rematch::scenarios
