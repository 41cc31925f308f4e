#include "properties/layers/recurrent.h"

namespace rematch {

constinit const Layer gru_layer{
    .name = "gru",
    .fields = {"features", "bias", "frozen"},
    .shape = [](ShapeWalk& s) { walk_recurrent(s, math::Cell::gru); },
    .facts = [](FactsWriter& w) { recurrent_facts(w, math::Cell::gru); },
    .in_blocks = [](const FactsWriter& w) { return recurrent_in_blocks(w, math::Cell::gru); },
    .bounds = rounding::gru_bounds,
    .has_products = true,
    .has_parameters = true,
    .weights = {.sequences = 8},
    .draw = draw_recurrent,
    .wide_floor = 1,
    .on_rows = "linear",
};

}  // namespace rematch
