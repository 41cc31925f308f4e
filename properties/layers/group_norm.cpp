#include <numeric>

#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer group_norm_layer{
    .name = "group_norm",
    .fields = {"groups", "frozen"},
    .shape =
        [](ShapeWalk& s) {
          if (s.x().rank() == 3) s.fail("an input of rank 2 or 4", to_string(s.x()));
          const std::int64_t channels = s.x()[1];
          const std::int64_t groups = s.spec().groups;
          if (groups < 1 || channels % groups != 0) {
            s.fail("groups that divide the " + std::to_string(channels) + " channels",
                   std::to_string(groups));
          }
          s.scale(channels);
          s.shift(channels);
          s.same_output();
        },
    .facts = [](FactsWriter& w) { w.save_normalised(w.x[0] * w.spec.groups); },
    .has_parameters = true,
    .overwritable = true,
    .weights = {.rows = 10, .images = 14},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.groups = std::gcd(m.x()[1], std::int64_t{m.draw.pick(std::array{1, 2, 3, 4, 24})});
          m.append(l);
        },
    .wide_floor = 8,
    .repair = [](LayerSpec& l, const Shape& x,
                 const Shape&) { l.groups = std::gcd(l.groups, x[1]); },
};

}  // namespace rematch
