#pragma once

#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/layers/feature.h"

namespace rematch {

/// `geometry` is validate(c).
FeatureSet features_of(const Case& c, const Geometry& geometry);

/// Layers whose trainable parameters a reentrant segment freezes, because none of its inputs
/// requires grad; ascending. `geometry` is validate(c).
std::vector<int> frozen_layers(const Case& c, const Geometry& geometry);

}  // namespace rematch
