#pragma once

#include "golden/numerics/testing/bounds.h"

namespace rematch::golden {

/// The bounds of a branch that every sample takes, or some; see bounds_of().
Bounds stochastic_depth_bounds(const Entry& entry);

}  // namespace rematch::golden
