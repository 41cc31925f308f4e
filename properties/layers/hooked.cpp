#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer hooked_layer{
    .name = "hooked",
    .fields = {"p"},
    .shape =
        [](ShapeWalk& s) {
          const double p = s.spec().p;
          if (!(p >= -1e6 && p <= 1e6)) s.fail("p in [-1e6, 1e6]", std::to_string(p));
          s.same_output();
        },
    .bounds =
        [](rounding::LayerRun& l) {
          return l.each([&](rounding::Var v) { return l.bounds.hooked(v, l.spec.p); });
        },
    .changes_gradients = [](const LayerSpec&, bool) { return true; },
    .overwritable = true,
    .weights = {.rows = 7, .sequences = 7, .images = 7},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          // Exact in every dtype.
          l.p = m.draw.pick(std::array{0.5, 2.0, -1.0});
          m.append(l);
        },
    .wide_floor = 1,
    .simple_p = 0.5,
};

}  // namespace rematch
