#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"
#include "properties/layers/normalised.h"

namespace rematch {

constinit const Layer layer_norm_layer{
    .name = "layer_norm",
    .fields = {"frozen"},
    .shape =
        [](ShapeWalk& s) {
          const std::int64_t width = s.x()[s.x().rank() - 1];
          s.scale(width);
          s.shift(width);
          s.same_output();
        },
    .facts = [](FactsWriter& w) { w.save_normalised(w.x.elements() / w.x[w.x.rank() - 1]); },
    .in_blocks = norm_of_rows_in_blocks,
    .bounds = [](rounding::LayerRun& l) { return rounding::norm_of_rows(l, true); },
    .has_parameters = true,
    .overwritable = true,
    .weights = {.perceptron = 1, .rows = 20, .sequences = 20, .images = 8},
    .standard_floor = 14,
    .wide_floor = 13,
};

}  // namespace rematch
