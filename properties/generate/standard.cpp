#include <array>

#include "properties/generate/parts.h"

namespace rematch {
namespace {

LayerSpec& append(Case& c, LayerKind kind) {
  LayerSpec& layer = c.layers.emplace_back();
  layer.kind = kind;
  return layer;
}

void draw_perceptron(DrawSource& draw, Case& c) {
  using enum LayerKind;
  constexpr std::array kinds{linear, relu, dropout, layer_norm, gelu, tanh};
  constexpr std::array probabilities{0.1, 0.25, 0.5};
  c.input = {draw.range(1, 8), draw.range(1, 32)};
  const int layers = draw.range(1, 10);
  c.layers.reserve(static_cast<std::size_t>(layers));
  for (int i = 0; i < layers; ++i) {
    LayerSpec& layer = append(c, draw.pick_kind(kinds));
    if (layer.kind == linear) layer.features = draw.range(1, 32);
    if (layer.kind == dropout) layer.p = draw.pick(probabilities);
  }
}

void draw_convolutional(DrawSource& draw, Case& c) {
  using enum LayerKind;
  constexpr std::array kinds{conv2d, relu, max_pool2d, batch_norm, dropout};
  std::int64_t pixels = draw.chance(50) ? 4 : 8;
  c.input = {draw.range(1, 8), draw.range(1, 4), pixels, pixels};
  const int layers = draw.range(1, 5);
  c.layers.reserve(static_cast<std::size_t>(layers) + 2);
  for (int i = 0; i < layers; ++i) {
    LayerKind kind = draw.pick_kind(kinds);
    if (kind == max_pool2d && pixels < 4) kind = dropout;
    LayerSpec& layer = append(c, kind);
    if (kind == conv2d) {
      layer.features = draw.range(1, 8);
      layer.kernel = 3;
      layer.padding = 1;
    } else if (kind == max_pool2d) {
      layer.kernel = layer.stride = 2;
      pixels /= 2;
    } else if (kind == dropout) {
      layer.p = 0.25;
    }
  }
  append(c, flatten);
  append(c, linear).features = 4;
}

}  // namespace

void draw_standard(DrawSource& draw, Case& c) {
  if (draw.chance(50) || !draw.may(Feature::images)) {
    draw_perceptron(draw, c);
  } else {
    draw_convolutional(draw, c);
  }
  SequentialSpec& plan = c.plan.sequential.emplace();
  plan.segments = draw.range(1, static_cast<int>(c.layers.size()));
  plan.choice.variant = draw.first(50, Feature::reentrant, Feature::non_reentrant)
                            ? Variant::reentrant
                            : Variant::non_reentrant;
  c.protocol.input_requires_grad = true;
}

}  // namespace rematch
