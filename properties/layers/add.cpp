#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer add_layer{
    .name = "add",
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
    .facts = [](FactsWriter& w) { w.f.backward = BackwardUse::share; },
    .overwritable = true,
    .weights = {.rows = 24, .sequences = 24, .images = 22},
    .draw = [](ModelDraw& m, LayerKind kind) { m.append_joined(kind); },
    .wide_floor = 18,
};

}  // namespace rematch
