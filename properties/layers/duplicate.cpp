#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer duplicate_layer{
    .name = "duplicate",
    .outputs = 2,
    .shape =
        [](ShapeWalk& s) {
          s.same_output();
          s.same_output();
        },
    .ops = [](const LayerSpec&, bool) { return kNoOps; },
    .facts = [](FactsWriter& w) { w.f.identity = true; },
    .bounds =
        [](rounding::LayerRun& l) {
          return std::vector<rounding::Vars>{l.operands[0], l.operands[0]};
        },
    .identity = true,
    .weights = {.rows = 12, .sequences = 12, .images = 12},
    .wide_floor = 11,
};

}  // namespace rematch
