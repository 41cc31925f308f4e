#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer gelu_layer{
    .name = "gelu",
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::operand); },
    .bounds = rounding::each<rounding::gelu>,
    .exchangeable = true,
    .weights = {.perceptron = 1, .rows = 8, .sequences = 8, .images = 6},
    .chained_in_tail = true,
    .standard_floor = 14,
    .wide_floor = 7,
};

}  // namespace rematch
