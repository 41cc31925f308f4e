#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer mul_layer{
    .name = "mul",
    .fields = {"from"},
    .operands = 2,
    .shape =
        [](ShapeWalk& s) {
          if (!(s.operand(1) == s.x())) {
            s.fail("operands of one shape", to_string(s.x()) + " and " + to_string(s.operand(1)));
          }
          s.same_output();
        },
    .fits = [](const Shape& x, const Shape& other) { return x == other; },
    .facts =
        [](FactsWriter& w) {
          // Each is what the gradient of the other is multiplied by.
          w.save(FactsWriter::What::operand, 0, FactsWriter::When::operand_requires_grad, 1);
          w.save(FactsWriter::What::operand, 1, FactsWriter::When::operand_requires_grad, 0);
        },
    .overwritable = true,
    .weights = {.rows = 10, .sequences = 14, .images = 10},
    .draw = [](ModelDraw& m, LayerKind kind) { m.append_joined(kind); },
    .wide_floor = 8.5,
};

}  // namespace rematch
