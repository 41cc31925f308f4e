#include "engine/math/delayed_scaling.h"

#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer delayed_scaling_layer{
    .name = "delayed_scaling",
    .fields = {"fp8", "eval"},
    .shape =
        [](ShapeWalk& s) {
          if (s.spec().fp8) {
            s.buffer("history", Shape{math::kFloat8History}, 0);
          } else {
            s.buffer("scale", Shape{1}, 1);
          }
          s.same_output();
        },
    .facts =
        [](FactsWriter& w) {
          if (!w.spec.fp8) return w.save_state(w.item);
          // The gradient passes by.
          w.f.state_bytes = math::kFloat8History * w.item;
          w.f.backward = BackwardUse::share;
        },
    .stateful = true,
    .reads_state = true,
    .changes_gradients = [](const LayerSpec& l, bool) { return l.fp8; },
    .overwritable = true,
    .weights = {.rows = 9, .sequences = 14, .images = 10},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.fp8 = m.draw.chance(50, Feature::fp8);
          m.append(l);
        },
    .wide_floor = 2,
};

}  // namespace rematch
