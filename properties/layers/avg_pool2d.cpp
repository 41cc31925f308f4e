#include "properties/layers/layer.h"
#include "properties/layers/pool2d.h"

namespace rematch {

constinit const Layer avg_pool2d_layer{
    .name = "avg_pool2d",
    .fields = {"kernel", "stride", "padding"},
    .shape = pool_shape,
    .bounds =
        [](rounding::LayerRun& l) {
          const auto pixels = static_cast<double>(l.spec.kernel * l.spec.kernel);
          return rounding::pool_bounds(l, [&](const rounding::Vars& window) {
            for (const rounding::Var v : window) l.bounds.plus(v, 1 / pixels);
            return l.bounds.sum();
          });
        },
    .overwritable = true,
    .weights = {.images = 12},
    .draw = draw_pool,
    .standard_floor = 0,
    .wide_floor = 2.6,
    .repair = repair_pool,
    .on_rows = "relu",
};

}  // namespace rematch
