#include "properties/layers/layer.h"

namespace rematch {
namespace {

bool fits(const Shape& x, const Shape& other) {
  if (x.rank() != other.rank()) return false;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != features_dimension(x) && x[i] != other[i]) return false;
  }
  return true;
}

}  // namespace

namespace rounding {
namespace {

/// Both operands one after the other, for each index of the dimensions before the features.
std::vector<Vars> concat_bounds(LayerRun& l) {
  Vars y;
  const int features = features_dimension(l.shape);
  const auto rows = static_cast<std::size_t>(l.shape.elements() / extent_from(l.shape, features));
  for (std::size_t row = 0; row < rows; ++row) {
    for (const Vars& x : l.operands) {
      const auto size = static_cast<std::ptrdiff_t>(x.size() / rows);
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row) * size;
      y.insert(y.end(), begin, begin + size);
    }
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer concat_layer{
    .name = "concat",
    .fields = {"from"},
    .operands = 2,
    .shape =
        [](ShapeWalk& s) {
          if (!fits(s.x(), s.operand(1))) {
            s.fail("operands that differ in their features only",
                   to_string(s.x()) + " and " + to_string(s.operand(1)));
          }
          s.output_of_width(s.width() + s.operand(1)[features_dimension(s.x())]);
        },
    .fits = fits,
    .bounds = rounding::concat_bounds,
    .overwritable = true,
    .weights = {.rows = 12, .sequences = 12, .images = 12},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          m.append_joined(kind, [](const Shape& x, const Shape& other) {
            const int d = features_dimension(x);
            return x[d] + other[d] <= ModelDraw::kWidest;
          });
        },
    .wide_floor = 10,
};

}  // namespace rematch
