#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"

namespace rematch {

namespace rounding {
namespace {

std::vector<Vars> linear_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  const std::int64_t width = l.shape[l.shape.rank() - 1];
  const std::int64_t features = l.output[l.output.rank() - 1];
  Vars y;
  for (std::int64_t row = 0; row < l.shape.elements() / width; ++row) {
    for (std::int64_t o = 0; o < features; ++o) {
      for (std::int64_t i = 0; i < width; ++i) {
        t.plus_product(l.operands[0][at(row * width + i)], l.parameters[0][at(o * width + i)]);
      }
      if (l.spec.bias) t.plus(l.parameters[1][at(o)]);
      y.push_back(t.sum());
    }
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer linear_layer{
    .name = "linear",
    .fields = {"features", "bias", "frozen", "tied_to"},
    .shape =
        [](ShapeWalk& s) {
          if (s.x().rank() > 3) s.fail("an input of rank 2 or 3", to_string(s.x()));
          s.need_features();
          const std::array sizes{s.spec().features, s.width()};
          s.product_of(sizes);
          s.weight_and_bias(Shape(sizes));
          s.output_of_width(s.spec().features);
        },
    .facts =
        [](FactsWriter& w) {
          w.f.backward = BackwardUse::product;
          w.save(FactsWriter::What::operand, 0, FactsWriter::When::parameter_requires_grad, 0);
          w.save(FactsWriter::What::parameter, 0, FactsWriter::When::operand_requires_grad, 0);
        },
    .in_blocks = [](const FactsWriter& w) { return linear_in_blocks(w, w.spec.features); },
    .bounds = rounding::linear_bounds,
    .low_precision = true,
    .has_parameters = true,
    .borrows_from = "embedding",
    .overwritable = true,
    .weights = {.perceptron = 1, .rows = 85, .sequences = 85},
    .draw_standard =
        [](ModelDraw& m, LayerSpec& l) {
          l.features = m.draw.range(1, 32);
          return true;
        },
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          const std::size_t choice = m.draw.weighted(std::array{55, 30, 12, 3});
          m.draw_weight(l, choice < 2 ? m.palette[choice] : m.draw.range(1, choice == 2 ? 16 : 40));
          m.append(l);
        },
    .chained_in_tail = true,
    .standard_floor = 39,
    .wide_floor = 25,
    .rank = 0,
};

}  // namespace rematch
