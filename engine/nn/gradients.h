#pragma once

#include "engine/tensor/tensor.h"

namespace rematch::nn {

/// Multiplies the gradients of `parameters` by most / (norm + 1e-6) where that is below 1, in
/// place; norm is the 2-norm of all of them together. torch.nn.utils.clip_grad_norm_(). Waits for
/// the device. Needs one element of memory at a time.
void clip_gradients(const Tensors& parameters, double most);

/// torch.amp.GradScaler without growth: losses are multiplied by a scale, gradients divided by it,
/// and a step whose gradients are not all finite is skipped, after which the scale is half of what
/// it was. With a power of two everything that neither overflows nor underflows is exact.
class GradScaler {
 public:
  /// Throws std::invalid_argument unless `scale` is positive and finite.
  explicit GradScaler(double scale);
  double scale() const { return scale_; }
  Tensor scaled(const Tensor& loss) const;
  /// Divides the gradients, in place, and says whether all are finite: whether the step is to be
  /// made. Halves the scale if not. Waits for the device.
  bool unscale(const Tensors& parameters);

 private:
  double scale_;
};

}  // namespace rematch::nn
