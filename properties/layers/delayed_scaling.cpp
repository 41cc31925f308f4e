#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer delayed_scaling_layer{
    .name = "delayed_scaling",
    .fields = {"eval"},
    .shape =
        [](ShapeWalk& s) {
          s.buffer("scale", Shape{1}, 1);
          s.same_output();
        },
    .facts = [](FactsWriter& w) { w.save_state(w.item); },
    .stateful = true,
    .reads_state = true,
    .overwritable = true,
    .weights = {.rows = 9, .sequences = 14, .images = 10},
    .wide_floor = 2,
};

}  // namespace rematch
