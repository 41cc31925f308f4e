#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer batch_norm_layer{
    .name = "batch_norm",
    .fields = {"frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          if (s.x().rank() == 3) s.fail("an input of rank 2 or 4", to_string(s.x()));
          const std::int64_t channels = s.x()[1];
          if (s.train() && s.x().elements() == channels) {
            s.fail("more than one value per channel in train mode", to_string(s.x()));
          }
          s.scale(channels);
          s.shift(channels);
          s.buffer("running_mean", Shape{channels}, 0);
          s.buffer("running_var", Shape{channels}, 1);
          s.same_output();
        },
    .facts = [](FactsWriter& w) { w.save_normalised(w.x[1]); },
    .has_parameters = true,
    .stateful = true,
    .overwritable = true,
    .weights = {.convolutional = 1, .rows = 15, .images = 20},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          if (m.train && m.x().elements() == m.x()[1]) return m.append_simple();
          m.append(kind);
        },
    .standard_floor = 11,
    .wide_floor = 7.7,
};

}  // namespace rematch
