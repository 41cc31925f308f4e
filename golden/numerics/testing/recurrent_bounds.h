#pragma once

#include "golden/numerics/testing/bounds.h"

namespace rematch::golden {

/// The bounds of a recurrent layer; see bounds_of().
Bounds recurrent_bounds(const Entry& entry);

}  // namespace rematch::golden
