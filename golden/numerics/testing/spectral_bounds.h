#pragma once

#include "golden/numerics/testing/bounds.h"

namespace rematch::golden {

/// Of a weight, u and v that are positive; see bounds_of().
Bounds spectral_norm_bounds(const Entry& entry);

}  // namespace rematch::golden
