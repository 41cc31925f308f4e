#include "properties/layers/same_shapes.h"

namespace rematch {

constinit const Layer mul_layer{
    .name = "mul",
    .fields = {"from"},
    .operands = 2,
    .shape = shape_of_two,
    .fits = same_shapes,
    .facts =
        [](FactsWriter& w) {
          // The gradient of one is multiplied by the other.
          w.save(FactsWriter::What::operand, 0, FactsWriter::When::operand_requires_grad, 1);
          w.save(FactsWriter::What::operand, 1, FactsWriter::When::operand_requires_grad, 0);
        },
    .overwritable = true,
    .weights = {.rows = 10, .sequences = 14, .images = 10},
    .draw = [](ModelDraw& m, LayerKind kind) { m.append_joined(kind); },
    .wide_floor = 8.5,
};

}  // namespace rematch
