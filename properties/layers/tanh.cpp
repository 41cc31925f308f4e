#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer tanh_layer{
    .name = "tanh",
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::output); },
    .bounds = rounding::each<rounding::tanh>,
    .exchangeable = true,
    .weights = {.perceptron = 1, .rows = 8, .sequences = 8, .images = 6},
    .chained_in_tail = true,
    .standard_floor = 14,
    .wide_floor = 7,
};

}  // namespace rematch
