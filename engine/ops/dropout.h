#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

struct RandomOptions {
  /// In evaluation nothing is drawn.
  bool train = true;
  /// Position of the ambient stream to draw from.
  int stream = 0;
};

/// Zeroes each element with probability p in [0, 1) and scales the others by 1 / (1 - p). Draws one
/// word per element (rounded up to 4) and saves the uint8 mask. With p == 0 or in evaluation the
/// result is x itself.
Tensor dropout(const Tensor& x, double p, const RandomOptions& options = {});

}  // namespace rematch
