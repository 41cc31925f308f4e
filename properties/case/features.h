#pragma once

#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/layers/feature.h"

namespace rematch {

/// `geometry` is validate(c).
FeatureSet features_of(const Case& c, const Geometry& geometry);

/// Whether kernels of the reference engine work on layer number `layer` in more than one block.
bool works_in_blocks(const Case& c, const Geometry& geometry, int layer);

/// Layers whose trainable parameters a reentrant segment freezes, because none of its inputs
/// requires grad; ascending. `geometry` is validate(c).
std::vector<int> frozen_layers(const Case& c, const Geometry& geometry);

}  // namespace rematch
