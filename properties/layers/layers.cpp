#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"

namespace rematch {

namespace {

constexpr std::array<const Layer*, kLayerKinds> kLayers{
#define REMATCH_KIND(name) &name##_layer,
    REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND
};

}  // namespace

const Layer& layer_of(LayerKind kind) { return *kLayers[static_cast<std::size_t>(kind)]; }

std::string_view to_string(LayerKind kind) { return layer_of(kind).name; }

LayerKind layer_kind(std::string_view name) {
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    if (kLayers[i]->name == name) return static_cast<LayerKind>(i);
  }
  throw std::invalid_argument("[layers] no kind of layer is called " + std::string(name));
}

LayerKind token_kind() {
  const auto found = std::find_if(kLayers.begin(), kLayers.end(),
                                  [](const Layer* l) { return l->takes_tokens(); });
  return static_cast<LayerKind>(found - kLayers.begin());
}

bool has_parameters(const LayerSpec& spec) {
  return layer_of(spec).has_parameters && (spec.layer == nullptr || spec.layer->parameters);
}

bool lends_weight(LayerKind owner, LayerKind to) {
  return owner == to || layer_of(owner).name == layer_of(to).borrows_from;
}

std::span<const std::string_view> ops_of(const LayerSpec& spec, bool train) {
  const Layer& layer = layer_of(spec);
  return layer.ops == nullptr ? std::span(&layer.name, 1) : layer.ops(spec, trains_in(spec, train));
}

std::optional<std::string_view> op_named(std::string_view name) {
  LayerSpec spec;
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    spec.kind = static_cast<LayerKind>(i);
    // With effect: a probability that is not 0.
    spec.p = layer_of(spec).takes("p") ? 0.5 : 0;
    for (const bool train : {true, false}) {
      for (const std::string_view op : ops_of(spec, train)) {
        if (op == name) return op;
      }
    }
  }
  return std::nullopt;
}

}  // namespace rematch
