#pragma once

#include "golden/numerics/testing/bounds.h"

namespace rematch::golden {

/// The bounds of a mixture of experts, whose routing must not be left to rounding; see bounds_of().
Bounds moe_bounds(const Entry& entry);

}  // namespace rematch::golden
