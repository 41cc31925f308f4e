#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// sum += term, elementwise; shapes and dtypes must agree. bfloat16 is added in float32 and
/// rounded. Does not record and does not count as an in-place write: gradients are the engine's
/// own.
void add_into(Tensor& sum, const Tensor& term);

/// a + b in new memory, without recording.
Tensor sum_of(const Tensor& a, const Tensor& b);

/// True when this handle is the only one on its tensor and the tensor the only one on its storage,
/// so that the memory may be taken over.
bool owned_alone(const Tensor& t);

/// A tensor over the same storage with another shape of equal element count; no history.
Tensor reshape_alias(const Tensor& t, const Shape& shape);

}  // namespace rematch
