#pragma once

#include <vector>

#include "engine/math/recurrent.h"
#include "properties/layers/layer.h"

namespace rematch {

/// The shape of a layer of cells over x[batch, steps, width].
math::RecurrentShape recurrent_shape(math::Cell cell, const LayerSpec& spec, const Shape& x);

// Members that the kinds of recurrent layers have in common; see Layer.

void walk_recurrent(ShapeWalk& s, math::Cell cell);
void recurrent_facts(FactsWriter& w, math::Cell cell);
bool recurrent_in_blocks(const FactsWriter& w, math::Cell cell);
void draw_recurrent(ModelDraw& m, LayerKind kind);

namespace rounding {

// Both begin with a state of zeros, which takes no part in sums and products.

std::vector<Vars> gru_bounds(LayerRun& l);
std::vector<Vars> lstm_bounds(LayerRun& l);

}  // namespace rounding
}  // namespace rematch
