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
