#pragma once

#include <memory>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/tensor/tensor.h"

namespace rematch::nn {

/// A differentiable step with parameters (trained), buffers (carried along) and a training switch.
/// Parameters are handles: a layer made from another's tensors is tied to it.
class Module {
 public:
  virtual ~Module() = default;
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }

  /// Weight before bias.
  const Tensors& parameters() const { return parameters_; }
  const Tensors& buffers() const { return buffers_; }
  bool training() const { return training_; }
  virtual void set_training(bool on) { training_ = on; }
  /// Frozen parameters do not require grad.
  void set_requires_grad(bool on) {
    for (Tensor& p : parameters_) p.set_requires_grad(on);
  }

  /// This module as a function for checkpoint(); the module must outlive it. The function throws
  /// std::invalid_argument unless it is given exactly one input.
  Function function();

 protected:
  Tensors parameters_;
  Tensors buffers_;
  bool training_ = true;
};

/// Modules one after the other. A parameter that several of them share counts once. Parameters with
/// a name get their place before it: "0.weight", in a sequence in a sequence "2.0.weight"; a shared
/// one is named after the first of its places.
class Sequential final : public Module {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules);
  Tensor forward(const Tensor& x) override;
  void set_training(bool on) override;
  const std::vector<std::shared_ptr<Module>>& modules() const { return modules_; }
  /// One function per module, for checkpoint_sequential().
  std::vector<Function> functions();

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace rematch::nn
