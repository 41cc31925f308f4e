#include "properties/layers/layer.h"
#include "properties/layers/pool2d.h"

namespace rematch {

constinit const Layer max_pool2d_layer{
    .name = "max_pool2d",
    .fields = {"kernel", "stride", "padding"},
    .shape = pool_shape,
    .facts =
        [](FactsWriter& w) {
          // The index of each maximum.
          w.save_own(w.y.elements() * static_cast<std::int64_t>(sizeof(std::int32_t)));
        },
    .bounds =
        [](rounding::LayerRun& l) {
          return rounding::pool_bounds(
              l, [&](const rounding::Vars& window) { return l.bounds.largest(window); });
        },
    .overwritable = true,
    .weights = {.convolutional = 1, .images = 12},
    .draw_standard =
        [](ModelDraw& m, LayerSpec& l) {
          l.kernel = l.stride = 2;
          return m.x()[2] >= 4;
        },
    .draw = draw_pool,
    .standard_floor = 11,
    .wide_floor = 2.6,
    .repair = repair_pool,
    .on_rows = "relu",
};

}  // namespace rematch
