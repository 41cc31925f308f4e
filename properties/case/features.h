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

/// Whether a value or a parameter is used within a segment, at any depth, and outside of it, so
/// that its gradient is a sum whose order the plan decides, if segments are differentiated as a
/// whole.
bool sums_across_segments(const Case& c, const Geometry& geometry);

}  // namespace rematch
