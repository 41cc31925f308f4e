#pragma once

#include <cstdint>

#include "engine/ops/noise.h"
#include "engine/tensor/tensor.h"

namespace rematch {

struct MoeOptions {
  /// Experts that a row goes to.
  std::int64_t top = 1;
  /// In training, uniform noise in [0, jitter) is added to the router's logits.
  double jitter = 0;
  RandomOptions random = {};
};

/// A mixture of experts: each row of x[..., features] is a linear combination of the outputs of the
/// `top` likeliest of experts[n, features, features], each a matrix, by their probabilities, which
/// are a softmax over all experts of router[n, features] times the row. The first of equals is
/// chosen, and probabilities are not scaled to a sum of one. A training forward adds to load[n] how
/// many rows each expert was given; a recomputation does not count again. Jitter draws a word for
/// every row and expert, in that order (rounded up to 4). Saves x if a parameter requires grad,
/// router and experts if x does; then the probabilities, the experts chosen for each row (int32),
/// and their outputs: as many bytes whichever they are.
Tensor moe(const Tensor& x, const Tensor& router, const Tensor& experts, Tensor& load,
           const MoeOptions& options);

}  // namespace rematch
