#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// max(x, 0). Saves its output.
Tensor relu(const Tensor& x);
/// The same, in place; returns x. Saves its output, which is x's storage.
Tensor relu_(Tensor& x);
/// x * Phi(x), the erf form. Saves x.
Tensor gelu(const Tensor& x);
/// x * sigmoid(x). Saves x.
Tensor silu(const Tensor& x);
/// Saves its output.
Tensor tanh(const Tensor& x);
/// 1 / (1 + exp(-x)). Saves its output.
Tensor sigmoid(const Tensor& x);
/// Over the last dimension. Saves its output.
Tensor softmax(const Tensor& x);
/// x where x > 0, else slope * x. Saves x.
Tensor leaky_relu(const Tensor& x, double slope);

}  // namespace rematch
