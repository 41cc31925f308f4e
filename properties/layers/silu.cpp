#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer silu_layer{
    .name = "silu",
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::operand); },
    .bounds = rounding::each<rounding::silu>,
    .exchangeable = true,
    .weights = {.rows = 8, .sequences = 8, .images = 6},
    .chained_in_tail = true,
    .wide_floor = 7,
};

}  // namespace rematch
