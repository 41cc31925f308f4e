#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Row tokens[i] of `weight`, [vocabulary, features], for each of `tokens`: int32 in
/// [0, vocabulary), of any shape, to which the result adds a last dimension of `features`. A token
/// has no gradient; that of a row of `weight` is the sum over the row's tokens in their order.
/// Saves the tokens. Throws std::invalid_argument for a token that has no row; on a device, where
/// the host does not wait for this check, such a token gets NaN and adds to no gradient.
Tensor embedding(const Tensor& tokens, const Tensor& weight);

}  // namespace rematch
