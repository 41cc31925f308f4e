#include <algorithm>

#include "properties/layers/layer.h"

namespace rematch {

namespace rounding {
namespace {

std::vector<Vars> split_bounds(LayerRun& l) {
  std::vector<Vars> y(2);
  const int features = features_dimension(l.shape);
  const auto plane = static_cast<std::size_t>(extent_from(l.shape, features + 1));
  const auto channels = static_cast<std::size_t>(l.shape[features]);
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    const bool first = static_cast<std::int64_t>(i / plane % channels) < l.spec.features;
    y[first ? 0 : 1].push_back(l.operands[0][i]);
  }
  return y;
}

}  // namespace
}  // namespace rounding

constinit const Layer split_layer{
    .name = "split",
    // Output 0 is the first `features` of the features, output 1 the rest.
    .fields = {"features"},
    .outputs = 2,
    .shape =
        [](ShapeWalk& s) {
          const std::int64_t width = s.width();
          const std::int64_t first = s.spec().features;
          if (first < 1 || first >= width) {
            s.fail("features in 1.." + std::to_string(width - 1) + " (the input has " +
                       std::to_string(width) + " features)",
                   std::to_string(first));
          }
          s.output_of_width(first);
          s.output_of_width(width - first);
        },
    .facts = [](FactsWriter& w) { w.f.backward = BackwardUse::join; },
    .bounds = rounding::split_bounds,
    .weights = {.rows = 14, .sequences = 14, .images = 12},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          const std::int64_t width = m.width();
          if (width < 2) return m.append_simple();
          LayerSpec l;
          l.kind = kind;
          l.features = m.draw.chance(40) && width % 2 == 0
                           ? width / 2
                           : m.draw.range(1, static_cast<int>(width) - 1);
          m.append(l);
        },
    .wide_floor = 10,
    .repair =
        [](LayerSpec& l, const Shape& x, const Shape&) {
          const std::int64_t width = x[features_dimension(x)];
          if (width >= 2) l.features = std::min(l.features, width - 1);
        },
};

}  // namespace rematch
