#pragma once

#include "engine/math/recurrent.h"
#include "properties/layers/layer.h"

namespace rematch {

/// Of a layer of cells over x[batch, steps, width].
math::RecurrentShape recurrent_shape(math::Cell cell, const LayerSpec& spec, const Shape& x);

// What kinds of recurrent layers have in common; see Layer.

void walk_recurrent(ShapeWalk& s, math::Cell cell);
void recurrent_facts(FactsWriter& w, math::Cell cell);
void draw_recurrent(ModelDraw& m, LayerKind kind);

}  // namespace rematch
