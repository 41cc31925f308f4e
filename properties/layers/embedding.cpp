#include "properties/layers/layer.h"

namespace rematch {

namespace rounding {
namespace {

/// Copies, so that nothing is rounded.
std::vector<Vars> embedding_bounds(LayerRun& l) {
  const std::int64_t features = l.spec.features;
  Vars y;
  for (const Var token : l.operands[0]) {
    const auto row = static_cast<std::int64_t>(l.bounds[token].value);
    for (std::int64_t c = 0; c < features; ++c)
      y.push_back(l.parameters[0][at(row * features + c)]);
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer embedding_layer{
    .name = "embedding",
    .fields = {"features", "vocabulary", "frozen"},
    .shape =
        [](ShapeWalk& s) {
          s.need_tokens();
          s.need_features();
          const LayerSpec& l = s.spec();
          s.parameter("weight", Shape{l.vocabulary, l.features}, -1, 1);
          s.output(std::array{s.x()[0], s.x()[1], l.features});
        },
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::operand); },
    .bounds = rounding::embedding_bounds,
    .has_parameters = true,
    .overwritable = true,
    // A model begins with it or does not: no draw of a further layer chooses it.
    .weights = {},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.features = m.palette[0];
          l.vocabulary = m.draw.range(1, 12);
          m.append(l);
        },
    .wide_floor = 4,
    .on_numbers = "linear",
};

}  // namespace rematch
