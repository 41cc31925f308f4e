#include "properties/layers/same_shapes.h"

namespace rematch {

namespace rounding {
namespace {

std::vector<Vars> add_bounds(LayerRun& l) {
  Vars y;
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    y.push_back(l.bounds.plus(l.operands[0][i]).plus(l.operands[1][i]).sum());
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer add_layer{
    .name = "add",
    .fields = {"from"},
    .operands = 2,
    .shape = shape_of_two,
    .fits = same_shapes,
    .facts = [](FactsWriter& w) { w.f.backward = BackwardUse::share; },
    .bounds = rounding::add_bounds,
    .overwritable = true,
    .weights = {.rows = 24, .sequences = 24, .images = 22},
    .draw = [](ModelDraw& m, LayerKind kind) { m.append_joined(kind); },
    .wide_floor = 18,
};

}  // namespace rematch
