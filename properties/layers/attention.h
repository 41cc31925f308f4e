#pragma once

#include "engine/math/attention.h"
#include "engine/tensor/shape.h"
#include "properties/layers/spec.h"

namespace rematch {

/// The shape of attention with queries of shape `x` and a second operand of shape `memory`. All is
/// as the engine's attention() wants it if the layer's fields and operands fit; else some is not.
math::AttentionShape attention_shape(const LayerSpec& spec, const Shape& x, const Shape& memory);

}  // namespace rematch
