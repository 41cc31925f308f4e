#include <algorithm>
#include <numeric>

#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer rotary_layer{
    .name = "rotary",
    // The first `features` are turned, as those of so many heads: all of a query, or the keys of
    // what attention takes as its memory.
    .fields = {"features", "heads"},
    .shape =
        [](ShapeWalk& s) {
          s.need_rank(3);
          const LayerSpec& l = s.spec();
          const std::int64_t width = s.width();
          if (l.features < 2 || l.features > width || l.features % 2 != 0) {
            s.fail("an even number of features in 2.." + std::to_string(width),
                   std::to_string(l.features));
          }
          if (l.heads < 1 || l.heads > l.features / 2 || l.features % (2 * l.heads) != 0) {
            s.fail("heads that have an even number of the " + std::to_string(l.features) +
                       " features each",
                   std::to_string(l.heads));
          }
          s.same_output();
        },
    .overwritable = true,
    .weights = {.sequences = 8},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          const std::int64_t pairs = m.width() / 2;
          if (pairs == 0) return m.append_simple();
          LayerSpec l;
          l.kind = kind;
          const std::int64_t turned = m.draw.range(1, static_cast<int>(pairs));
          l.features = 2 * turned;
          l.heads = std::gcd(turned, std::int64_t{m.draw.range(1, 4)});
          m.append(l);
        },
    .wide_floor = 1,
    .repair =
        [](LayerSpec& l, const Shape& x, const Shape&) {
          if (x.rank() != 3) return;
          const std::int64_t turned = std::min(l.features, x[2]) / 2;
          l.features = 2 * turned;
          l.heads = std::gcd(turned, l.heads);
        },
    .on_rows = "relu",
};

}  // namespace rematch
