#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer flatten_layer{
    .name = "flatten",
    .shape =
        [](ShapeWalk& s) {
          const Shape& x = s.x();
          s.output(std::array{x[0], x.elements() / x[0]});
        },
    .ops = [](const LayerSpec&, bool) { return kNoOps; },
    .facts =
        [](FactsWriter& w) {
          w.f.identity = w.x.rank() == 2;
          w.f.aliases_operand = true;
        },
    .bounds = [](rounding::LayerRun& l) { return std::vector<rounding::Vars>{l.operands[0]}; },
    .view = true,
    .weights = {.rows = 2, .sequences = 2},
    .standard_floor = 25,
    .wide_floor = 16,
    .rank = 2,
};

}  // namespace rematch
