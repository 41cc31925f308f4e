#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer sigmoid_layer{
    .name = "sigmoid",
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::output); },
    .bounds = rounding::each<rounding::sigmoid>,
    .exchangeable = true,
    .weights = {.rows = 8, .sequences = 8, .images = 6},
    .chained_in_tail = true,
    .wide_floor = 7,
};

}  // namespace rematch
