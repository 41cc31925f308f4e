#pragma once

#include "engine/ops/dropout.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// Randomised leaky ReLU: in training, negative elements are scaled by a factor drawn uniformly
/// from [lower, upper], one word per element (rounded up to 4), and the factors are saved; in
/// evaluation by (lower + upper) / 2, saving x.
Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3,
             const RandomOptions& options = {});

/// x + sigma * z with z standard normal; draws one word per element (rounded up to 4), saves
/// nothing. With sigma == 0 or in evaluation the result is x itself.
Tensor gaussian_noise(const Tensor& x, double sigma, const RandomOptions& options = {});

}  // namespace rematch
