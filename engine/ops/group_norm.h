#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Normalises each sample of x[n, c] or x[n, c, h, w] in `groups` (which divides c) sets of
/// neighbouring channels, each by its own mean and biased variance, then scales by weight[c] and
/// shifts by bias[c]. Saves x, mean and 1/std per sample and group, and weight when x requires
/// grad.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps = 1e-5);

}  // namespace rematch
