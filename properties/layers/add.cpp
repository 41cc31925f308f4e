#include "properties/layers/same_shapes.h"

namespace rematch {

constinit const Layer add_layer{
    .name = "add",
    .fields = {"from"},
    .operands = 2,
    .shape = shape_of_two,
    .fits = same_shapes,
    .facts = [](FactsWriter& w) { w.f.backward = BackwardUse::share; },
    .overwritable = true,
    .weights = {.rows = 24, .sequences = 24, .images = 22},
    .draw = [](ModelDraw& m, LayerKind kind) { m.append_joined(kind); },
    .wide_floor = 18,
};

}  // namespace rematch
