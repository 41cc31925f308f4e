#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// The same storage in another shape of equal element count. In-place writes to either show in
/// both, in values and in history.
Tensor reshape(const Tensor& x, const Shape& shape);

/// [n, rest]. A tensor of rank 2 is returned as it is.
Tensor flatten(const Tensor& x);

}  // namespace rematch
