#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer softmax_layer{
    .name = "softmax",
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::output); },
    .exchangeable = true,
    .weights = {.rows = 6, .sequences = 6, .images = 5},
    .wide_floor = 5.5,
};

}  // namespace rematch
