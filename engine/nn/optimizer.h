#pragma once

#include <cstdint>
#include <memory>

#include "engine/tensor/tensor.h"

namespace rematch::nn {

/// Updates parameters in place from their .grad; parameters without a gradient are left alone.
/// Keeps handles, so it must not outlive what it trains in spirit.
class Optimizer {
 public:
  /// Throws std::invalid_argument for a parameter that is given twice, or is neither float32 nor
  /// float64.
  explicit Optimizer(Tensors parameters);
  virtual ~Optimizer() = default;
  /// Throws OutOfMemory before it changes anything, so that a failed step can be made again.
  virtual void step() = 0;
  /// Gradients become absent, not zero.
  void zero_grad();

 protected:
  /// Zeros for every parameter that has a gradient and no entry in `state` yet.
  Tensors missing(const Tensors& state) const;

  /// body(i, parameter i) for those of the dtype that have a gradient, as ones about to be written.
  template <class Body>
  void for_gradients_of(DType dtype, const Body& body);

  Tensors parameters_;
};

/// torch.optim.SGD: with momentum, buffer = momentum * buffer + grad (the first time: grad), and
/// weight -= lr * buffer.
class Sgd final : public Optimizer {
 public:
  Sgd(Tensors parameters, double lr, double momentum = 0);
  void step() override;

 private:
  double lr_;
  double momentum_;
  Tensors buffers_;
};

/// torch.optim.Adam without weight decay.
class Adam final : public Optimizer {
 public:
  Adam(Tensors parameters, double lr, double beta1 = 0.9, double beta2 = 0.999, double eps = 1e-8);
  ~Adam() override;
  void step() override;

 private:
  double lr_;
  double beta1_;
  double beta2_;
  double eps_;
  /// How many steps each parameter has made, where the kernels run: a captured step counts as well.
  /// Outside of the ledger.
  class Counts;
  std::unique_ptr<Counts> steps_;
  Tensors first_;
  Tensors second_;
};

}  // namespace rematch::nn
