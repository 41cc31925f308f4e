#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"
#include "properties/layers/normalised.h"

namespace rematch {

constinit const Layer rms_norm_layer{
    .name = "rms_norm",
    .fields = {"frozen"},
    .shape =
        [](ShapeWalk& s) {
          s.scale(s.x()[s.x().rank() - 1]);
          s.same_output();
        },
    // No means.
    .facts = [](FactsWriter& w) { w.save_normalised(w.x.elements() / w.x[w.x.rank() - 1], false); },
    .in_blocks = norm_of_rows_in_blocks,
    .bounds = [](rounding::LayerRun& l) { return rounding::norm_of_rows(l, false); },
    .has_parameters = true,
    .overwritable = true,
    .weights = {.rows = 14, .sequences = 14, .images = 6},
    .wide_floor = 9,
};

}  // namespace rematch
