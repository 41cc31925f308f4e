#include <span>

#include "properties/bounds/functions.h"
#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"

namespace rematch {

namespace rounding {
namespace {

std::vector<Vars> softmax_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  Vars y;
  for (std::size_t row = 0; row < l.operands[0].size(); row += width) {
    const Exponentials e = exponentials(t, std::span(l.operands[0]).subspan(row, width));
    const Var scale = reciprocal(t, e.sum);
    for (const Var v : e.x) y.push_back(t.plus_product(v, scale).sum());
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer softmax_layer{
    .name = "softmax",
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::output); },
    .in_blocks = [](const FactsWriter& w) { return w.x[w.x.rank() - 1] > math::kSumBlock; },
    .bounds = rounding::softmax_bounds,
    .exchangeable = true,
    .weights = {.rows = 6, .sequences = 6, .images = 5},
    .wide_floor = 5.5,
};

}  // namespace rematch
