// The kinds that are a smooth function of each element.
#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

using What = FactsWriter::What;

/// `saved`: what the backward reads.
template <What saved, auto function>
constexpr Layer smooth(std::string_view name) {
  return {.name = name,
          .facts = [](FactsWriter& w) { w.save(saved); },
          .bounds = rounding::each<function>,
          .exchangeable = true,
          .weights = {.rows = 8, .sequences = 8, .images = 6},
          .chained_in_tail = true,
          .wide_floor = 7};
}

/// One that the standard mix has, too.
constexpr Layer common(Layer layer) {
  layer.weights.perceptron = 1;
  layer.standard_floor = 14;
  return layer;
}

}  // namespace

constinit const Layer gelu_layer = common(smooth<What::operand, rounding::gelu>("gelu"));
constinit const Layer tanh_layer = common(smooth<What::output, rounding::tanh>("tanh"));
constinit const Layer sigmoid_layer = smooth<What::output, rounding::sigmoid>("sigmoid");
constinit const Layer silu_layer = smooth<What::operand, rounding::silu>("silu");

}  // namespace rematch
