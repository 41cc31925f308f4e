#pragma once

#include "golden/numerics/testing/bounds.h"

namespace rematch::golden {

/// The bounds of what takes several steps; see bounds_of().
Bounds sgd_bounds(const Entry& entry);
Bounds adam_bounds(const Entry& entry);
Bounds model_bounds(const Entry& entry);

}  // namespace rematch::golden
