#pragma once

#include "properties/rounding/layers.h"

namespace rematch::rounding {

/// A mixture of experts without jitter. Training adds to the buffer how many rows each expert was
/// given. Where rounding decides who is given a row, nothing is said of its result.
Vars moe(LayerRun& layer);

}  // namespace rematch::rounding
