#include "properties/plans/testing/random_chain.h"

#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/geometry.h"
#include "properties/generate/parts.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

bool is_valid(const Case& c) {
  try {
    validate(c);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

Case draw_chain(DrawSource& draw, int fewest, int most) {
  constexpr std::string_view kKinds[] = {"linear",     "linear",  "linear",   "tanh",
                                         "relu",       "gelu",    "sigmoid",  "silu",
                                         "layer_norm", "dropout", "rms_norm", "batch_norm",
                                         "softmax",    "flatten", "rrelu",    "gaussian_noise"};
  Case c;
  c.input = {2, 3};
  for (int i = draw.range(fewest, most); i > 0; --i) {
    LayerSpec l;
    l.kind = layer_kind(kKinds[draw.below(std::size(kKinds))]);
    l.p = layer_of(l).simple_p;
    if (l.kind == layer_kind("linear")) {
      l.features = draw.range(1, 12);
      l.bias = draw.chance(70);
      l.frozen = draw.chance(10);
    }
    c.layers.push_back(l);
    LayerSpec& last = c.layers.back();
    if (draw.chance(20)) last.in_place = layer_of(l).takes("in_place");
    if (last.in_place && !is_valid(c)) last.in_place = false;
  }
  c.input = {draw.range(1, 4), draw.range(1, 12)};
  c.seed = draw.word();
  c.protocol.input_requires_grad = draw.chance(50);
  c.protocol.steps = draw.range(1, 2);
  c.protocol.microbatches = draw.range(1, 2);
  c.protocol.prior_gradients = draw.chance(20);
  c.protocol.zero_grad = draw.chance(70);
  if (draw.chance(30)) c.protocol.loss = LossKind::cross_entropy;
  if (draw.chance(30)) c.protocol.optimizer = OptimizerKind::adam;
  return c;
}

}  // namespace

Case random_chain(DrawSource& draw, int fewest, int most) {
  for (;;) {
    Case c = draw_chain(draw, fewest, most);
    if (is_valid(c) && loss_requires_grad(c)) return c;
  }
}

}  // namespace rematch
