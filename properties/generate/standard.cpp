#include <array>
#include <utility>

#include "properties/generate/parts.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

std::array<int, kLayerKinds> weights_of(int Layer::Weights::*weight) {
  std::array<int, kLayerKinds> weights{};
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    weights[i] = layer_of(static_cast<LayerKind>(i)).weights.*weight;
  }
  return weights;
}

/// A layer by weight; in the place of one that does not fit here, one of the last kind that may be
/// drawn.
void draw_layer(ModelDraw& model, const std::array<int, kLayerKinds>& weights) {
  LayerSpec layer;
  layer.kind = model.draw.weighted_kind(weights);
  if (!layer_of(layer).draw_standard(model, layer)) {
    std::size_t last = kLayerKinds - 1;
    while (weights[last] == 0) --last;
    layer = {};
    layer.kind = static_cast<LayerKind>(last);
    layer_of(layer).draw_standard(model, layer);
  }
  model.append(std::move(layer));
}

void draw_perceptron(DrawSource& draw, Case& c) {
  c.input = {draw.range(1, 8), draw.range(1, 32)};
  const int layers = draw.range(1, 10);
  ModelDraw model(draw, c.input, c.layers, c.protocol.train);
  for (int i = 0; i < layers; ++i) draw_layer(model, weights_of(&Layer::Weights::perceptron));
}

void draw_convolutional(DrawSource& draw, Case& c) {
  const std::int64_t pixels = draw.chance(50) ? 4 : 8;
  c.input = {draw.range(1, 8), draw.range(1, 4), pixels, pixels};
  const int layers = draw.range(1, 5);
  ModelDraw model(draw, c.input, c.layers, c.protocol.train);
  for (int i = 0; i < layers; ++i) draw_layer(model, weights_of(&Layer::Weights::convolutional));
  model.append(layer_kind("flatten"));
  LayerSpec head;
  head.kind = layer_kind("linear");
  head.features = 4;
  model.append(std::move(head));
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
