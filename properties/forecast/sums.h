#pragma once

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/layers/facts.h"

namespace rematch {

/// Whether a value or a parameter is used within a segment, at any depth, and outside of it, so
/// that its gradient is a sum whose order the plan decides, if segments are differentiated as a
/// whole. `facts` say which layers hand on their operand under another name.
bool sums_across_segments(const Case& c, const Geometry& geometry, const Facts& facts);

}  // namespace rematch
