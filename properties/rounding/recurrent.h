#pragma once

#include "properties/rounding/layers.h"

namespace rematch::rounding {

// Recurrent layers, from a state of zeros, which takes no part in sums and products.

Vars gru(LayerRun& layer);
Vars lstm(LayerRun& layer);

}  // namespace rematch::rounding
