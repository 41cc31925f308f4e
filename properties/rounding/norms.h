#pragma once

#include "properties/rounding/layers.h"

namespace rematch::rounding {

// Layers that scale by statistics. Those with buffers replace them in training.

Vars layer_norm(LayerRun& layer);
Vars rms_norm(LayerRun& layer);
Vars group_norm(LayerRun& layer);
Vars batch_norm(LayerRun& layer);
Vars delayed_scaling(LayerRun& layer);
Vars spectral_norm(LayerRun& layer);

}  // namespace rematch::rounding
