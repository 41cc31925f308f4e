#include <algorithm>
#include <numeric>

#include "engine/math/rotary.h"
#include "properties/layers/layer.h"

namespace rematch {

namespace rounding {
namespace {

/// Cosines and sines are within 2^-50 of the exact ones at position 0, and as much further off with
/// each position as an angle in radians that is off by 4 roundoffs of float64: subjects compute
/// them in float64. Rule 1 covers the rounding to a narrower format.
std::vector<Vars> rotary_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  const math::RotaryShape s{l.shape[0], l.shape[1], l.shape[2], l.spec.features, l.spec.heads};
  const Vars& x = l.operands[0];
  Vars y = x;
  for (std::int64_t i = 0; i < s.batch * s.positions; ++i) {
    const std::int64_t position = i % s.positions;
    const double off = static_cast<double>(position + 1) * 0x1p-50;
    for (std::int64_t pair = 0; pair < s.pairs(); ++pair) {
      const math::CosSin by = math::rotation(position, pair, s.size());
      const Var cos = t.leaf({by.cos, off});
      const Var sin = t.leaf({by.sin, off});
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::size_t first = at(i * s.width + h * s.size() + pair);
        const std::size_t second = first + at(s.pairs());
        y[first] = t.plus_product(x[first], cos).plus_product(x[second], sin, -1).sum();
        y[second] = t.plus_product(x[second], cos).plus_product(x[first], sin).sum();
      }
    }
  }
  return {y};
}

}  // namespace
}  // namespace rounding

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
    .bounds = rounding::rotary_bounds,
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
