#include "properties/layers/layer.h"

namespace rematch {
namespace {

bool fits(const Shape& x, const Shape& other) {
  if (x.rank() != other.rank()) return false;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != 1 && x[i] != other[i]) return false;
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
            s.fail("operands that differ along dimension 1 only",
                   to_string(s.x()) + " and " + to_string(s.operand(1)));
          }
          s.output_of_width(s.x()[1] + s.operand(1)[1]);
        },
    .fits = fits,
    .overwritable = true,
    .weights = {.rows = 12, .images = 12},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          m.append_joined(kind, [](const Shape& x, const Shape& other) {
            return x[1] + other[1] <= ModelDraw::kWidest;
          });
        },
    .wide_floor = 10,
};

}  // namespace rematch
