#include "properties/layers/model_draw.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "properties/layers/layer.h"

namespace rematch {

namespace {

/// Keeps the layers of one group, any with the same chance; layers of a group have the same key.
template <class Key>
void keep_one(DrawSource& draw, std::vector<const CustomLayer*>& layers, Key key) {
  std::vector<std::string_view> keys;
  for (const CustomLayer* layer : layers) keys.push_back(key(layer));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  const std::string_view kept = keys[draw.below(static_cast<std::uint32_t>(keys.size()))];
  std::erase_if(layers, [&](const CustomLayer* layer) { return key(layer) != kept; });
}

}  // namespace

ModelDraw::ModelDraw(DrawSource& source, const std::vector<std::int64_t>& input,
                     std::vector<LayerSpec>& layers, bool training, int further_inputs)
    : draw(source),
      train(training),
      layers_(layers),
      input_(std::span(input)),
      walk_(input, further_inputs, layers, training, geometry_) {}

LayerSpec& ModelDraw::append(LayerSpec spec) {
  layers_.push_back(std::move(spec));
  walk_.step();
  return layers_.back();
}

LayerSpec& ModelDraw::append(LayerKind kind) {
  LayerSpec spec;
  spec.kind = kind;
  return append(std::move(spec));
}

void ModelDraw::append_simple() {
  // An activation, a kind that the case may have before one that it may not (then the case is drawn
  // again), and of those the simplest.
  std::optional<LayerKind> best;
  const auto place = [&](LayerKind kind) {
    return std::pair(!draw.may(feature_of(kind)), layer_of(kind).rank);
  };
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    const auto kind = static_cast<LayerKind>(i);
    if (layer_of(kind).exchangeable && (!best || place(kind) < place(*best))) best = kind;
  }
  append(*best);
}

int ModelDraw::find_owner(const LayerSpec& layer) {
  if (!draw.chance(50, Feature::tied_weight)) return -1;
  int found = -1;
  for (int i = 0; i < layer_count(); ++i) {
    const LayerSpec& l = layers_[static_cast<std::size_t>(i)];
    const bool fits = lends_weight(l.kind, layer.kind) && l.tied_to == -1 &&
                      l.kernel == layer.kernel && geometry_.weight_of(i)[1] == width();
    if (fits) found = i;
  }
  return found;
}

const CustomLayer* ModelDraw::draw_custom() {
  // Wider values than other layers make would make the rest of the model slow.
  constexpr std::int64_t kMostElements = 2048;
  std::vector<const CustomLayer*> fitting;
  for (const CustomLayer* layer : draw.custom_layers()) {
    const std::vector<std::int64_t> result = layer->result_for(x());
    std::int64_t elements = 1;
    for (const std::int64_t extent : result) elements *= extent;
    if (!result.empty() && elements <= kMostElements) fitting.push_back(layer);
  }
  if (fitting.empty()) return nullptr;
  // A library's thousand samples leave room for the layers that
  // were written by hand, and a class with many of them for others.
  keep_one(draw, fitting, [](const CustomLayer* l) {
    return std::string_view(l->name).substr(0, l->name.find('.') + 1);
  });
  keep_one(draw, fitting, [](const CustomLayer* l) { return l->family(); });
  return fitting[draw.below(static_cast<std::uint32_t>(fitting.size()))];
}

void ModelDraw::draw_weight(LayerSpec& layer, std::int64_t features) {
  const int owner = find_owner(layer);
  layer.features = features;
  layer.bias = draw.chance(80);
  if (owner < 0) return;
  const LayerSpec& o = layers_[static_cast<std::size_t>(owner)];
  layer.features = geometry_.weight_of(owner)[0];
  layer.bias = has_bias(o);
  layer.tied_to = owner;
}

void ModelDraw::append_joined(LayerKind kind, Wanted wanted, Choose choose) {
  std::vector<ValueRef> partners;
  const auto consider = [&](ValueRef v) {
    if (v.layer < 0 && walk_.takes_tokens()) return;
    const Shape& other = geometry_.shape_of(v, input_);
    if (layer_of(kind).fits(x(), other) && wanted(x(), other)) partners.push_back(v);
  };
  // A further input that no layer reads yet goes first.
  for (int k = 1; k < geometry_.inputs; ++k) {
    if (!reads(layers_, {-1, k})) consider({-1, k});
  }
  const bool unread = !partners.empty();
  for (int k = 0; k < geometry_.inputs; ++k) {
    if (k == 0 || reads(layers_, {-1, k})) consider({-1, k});
  }
  for (int i = 0; i < layer_count(); ++i) {
    const int outputs = static_cast<int>(geometry_.outputs[static_cast<std::size_t>(i)].size());
    for (int k = 0; k < outputs; ++k) consider({i, k});
  }
  if (partners.empty()) return append_simple();
  // The oldest partner makes the longest skip.
  const auto chosen =
      draw.chance(unread ? 80 : 40) ? 0 : draw.below(static_cast<std::uint32_t>(partners.size()));
  LayerSpec spec;
  spec.kind = kind;
  spec.from = {partners[chosen]};
  choose(*this, spec, geometry_.shape_of(partners[chosen], input_));
  append(std::move(spec));
}

}  // namespace rematch
