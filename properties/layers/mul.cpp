#include "properties/layers/same_shapes.h"

namespace rematch {

namespace rounding {
namespace {

std::vector<Vars> mul_bounds(LayerRun& l) {
  Vars y;
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    y.push_back(l.bounds.plus_product(l.operands[0][i], l.operands[1][i]).sum());
  }
  return {y};
}

}  // namespace
}  // namespace rounding

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
    .bounds = rounding::mul_bounds,
    .overwritable = true,
    .weights = {.rows = 10, .sequences = 14, .images = 10},
    .draw = [](ModelDraw& m, LayerKind kind) { m.append_joined(kind); },
    .wide_floor = 8.5,
};

}  // namespace rematch
