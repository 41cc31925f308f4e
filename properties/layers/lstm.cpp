#include "properties/layers/recurrent.h"

namespace rematch {

constinit const Layer lstm_layer{
    .name = "lstm",
    .fields = {"features", "bias", "frozen"},
    .shape = [](ShapeWalk& s) { walk_recurrent(s, math::Cell::lstm); },
    .facts = [](FactsWriter& w) { recurrent_facts(w, math::Cell::lstm); },
    .in_blocks = [](const FactsWriter& w) { return recurrent_in_blocks(w, math::Cell::lstm); },
    .bounds = rounding::lstm_bounds,
    .has_products = true,
    .has_parameters = true,
    .weights = {.sequences = 8},
    .draw = draw_recurrent,
    .wide_floor = 1,
    .on_rows = "linear",
};

}  // namespace rematch
