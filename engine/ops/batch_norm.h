#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

struct BatchNormOptions {
  bool train = true;
  double momentum = 0.1;
  double eps = 1e-5;
};

/// Normalises each channel (dimension 1) of x[n, c] or x[n, c, h, w], then scales by weight[c] and
/// shifts by bias[c]. In training the batch statistics are used and the running ones, in place,
/// become (1 - momentum) * running + momentum * batch (unbiased variance); in evaluation the
/// running ones are used. A recomputation does not update them again. Saves x, mean, 1/std, and
/// weight when x requires grad. Training needs more than one value per channel.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean,
                  Tensor& running_var, const BatchNormOptions& options = {});

}  // namespace rematch
