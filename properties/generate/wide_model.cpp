#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "properties/generate/edit.h"
#include "properties/generate/parts.h"
#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr int kMostLayers = 24;
/// By kind, in its order.
using Weights = std::array<int, kLayerKinds>;

Weights allowed(const DrawSource& draw, int Layer::Weights::*weight) {
  Weights weights{};
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    const auto kind = static_cast<LayerKind>(i);
    if (draw.may(feature_of(kind))) weights[i] = layer_of(kind).weights.*weight;
  }
  return weights;
}

bool any(const Weights& weights) {
  return std::any_of(weights.begin(), weights.end(), [](int w) { return w > 0; });
}

enum class Form : std::uint8_t { rows, sequences, images };

Form form_of(const Shape& x) { return static_cast<Form>(std::min(x.rank(), 4) - 2); }

/// Few different sizes, so that skips and ties find partners; mostly no multiples of 4.
std::vector<std::int64_t> draw_input(DrawSource& draw, std::int64_t width, Form form) {
  const bool one = draw.weighted(std::array{1, 2}) == 0 && draw.may(Feature::one_row);
  const std::int64_t batch = one ? 1 : draw.range(2, 5);
  if (form == Form::rows) return {batch, width};
  if (form == Form::sequences) return {batch, draw.range(1, 6), width};
  const std::int64_t channels = draw.range(1, 4);
  const std::int64_t height = draw.range(3, 7);
  return {batch, channels, height, draw.chance(70) ? height : draw.range(3, 7)};
}

/// Leaves out kinds that would cost too much, if others are left.
template <class Costs>
void leave_out(Weights& weights, Costs costs) {
  Weights others = weights;
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    if (costs(layer_of(static_cast<LayerKind>(i)))) others[i] = 0;
  }
  if (any(others)) weights = others;
}

/// Extents of the input, and with them a width of the palette, that are large enough for a second
/// block.
void enlarge(DrawSource& draw, Form form, Case& c, std::int64_t& width, Weights& of_rows) {
  const std::int64_t beyond = draw.range(1, 9);
  constexpr std::int64_t kFewSamples = 2;
  if (form == Form::images) {
    std::int64_t side = 1;
    while (side * side <= FirstBlock::kOutputs) ++side;
    c.input = {std::min(c.input[0], kFewSamples), c.input[1], side + beyond / 2, side + beyond / 2};
    return;
  }
  if (form == Form::sequences) {
    c.input[0] = std::min(c.input[0], kFewSamples);
    c.input[1] = FirstBlock::kQueries + beyond;
    return;
  }
  switch (draw.weighted(std::array{60, 20, 20})) {
    case 0:
      c.input[0] = FirstBlock::kRows + beyond;
      return;
    case 1:
      c.input[1] = width = FirstBlock::kFeatures + beyond;
      return leave_out(of_rows, [](const Layer& l) { return l.has_products; });
    default:
      c.input[1] = FirstBlock::kTerms + beyond;
      return leave_out(of_rows, [](const Layer& l) { return l.has_products || l.low_precision; });
  }
}

void freeze(DrawSource& draw, Case& c) {
  const int layers = static_cast<int>(c.layers.size());
  int begin = 0;
  int end = 0;
  if (draw.chance(20, Feature::frozen_parameters)) {
    end = draw.range(1, layers);
  } else if (draw.chance(12, Feature::frozen_parameters)) {
    begin = draw.range(0, layers - 1);
    end = begin + 1;
  }
  for (int i = begin; i < end; ++i) {
    LayerSpec& l = c.layers[static_cast<std::size_t>(i)];
    if (has_parameters(l)) l.frozen = true;
  }
  for (LayerSpec& l : c.layers) {
    if (l.tied_to >= 0) l.frozen = c.layers[static_cast<std::size_t>(l.tied_to)].frozen;
  }
  if (!loss_requires_grad(c)) require_grad(c);
}

/// Layers that read the further inputs, at the beginning, where they have the first one's shape.
void draw_readers(DrawSource& draw, ModelDraw& model, int further, Weights weights) {
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    if (layer_of(static_cast<LayerKind>(i)).operands < 2) weights[i] = 0;
  }
  for (int i = 0; any(weights) && i < further; ++i) {
    const auto kind = static_cast<LayerKind>(draw.weighted(weights));
    layer_of(kind).draw(model, kind);
  }
}

/// Some layers run in eval mode, in a model that trains.
void set_modes(DrawSource& draw, Case& c) {
  if (!c.protocol.train || !draw.chance(35, Feature::eval_layer)) return;
  for (LayerSpec& l : c.layers) {
    if (layer_of(l).takes("eval") && l.layer == nullptr) l.eval = draw.chance(40);
  }
}

}  // namespace

void require_grad(Case& c) {
  if (vocabulary_of(c.layers) == 0) {
    c.protocol.input_requires_grad = true;
    return;
  }
  // Tokens have no gradient.
  for (LayerSpec& l : c.layers) l.frozen = false;
}

void leave_out_gradients(Case& c) {
  for (LayerSpec& l : c.layers) {
    if (has_parameters(l)) l.frozen = true;
  }
  ProtocolSpec& p = c.protocol;
  p.input_requires_grad = false;
  p.further_inputs_with_grad = 0;
  p.failure = {};
  p.partial = false;
  p.auxiliary_losses = false;
}

void draw_without_gradient(DrawSource& draw, Case& c) {
  if (draw.chance(3, Feature::without_gradient)) leave_out_gradients(c);
}

bool loss_requires_grad(const Case& c) {
  if (c.protocol.input_requires_grad || c.protocol.further_inputs_with_grad > 0) return true;
  return std::any_of(c.layers.begin(), c.layers.end(),
                     [](const LayerSpec& l) { return has_parameters(l) && !l.frozen; });
}

void draw_wide_model(DrawSource& draw, Case& c, DrawSource* sizes, DrawSource* dimensions) {
  std::array weights{allowed(draw, &Layer::Weights::rows),
                     allowed(draw, &Layer::Weights::sequences),
                     allowed(draw, &Layer::Weights::images)};
  constexpr std::array ranges{std::pair{2, 5}, std::pair{6, 11}, std::pair{12, kMostLayers}};
  const auto [low, high] = ranges[draw.weighted(std::array{60, 30, 10})];
  const int drawn = draw.range(low, high);
  const int layers = sizes == nullptr ? drawn : sizes->range(2, 5);
  const auto some = [&](Form form) { return any(weights[static_cast<std::size_t>(form)]); };
  const bool rows = some(Form::rows);
  Form form = Form::rows;
  if ((draw.chance(50, Feature::images) || !rows) && some(Form::images)) form = Form::images;
  const bool others = some(form);
  if ((draw.chance(30, Feature::sequences) || (!others && draw.may(Feature::sequences))) &&
      some(Form::sequences)) {
    form = Form::sequences;
  }
  if (dimensions != nullptr) {
    form = Form::images;
    // Layers that take any number of dimensions.
    for (std::size_t i = 0; i < kLayerKinds; ++i) {
      if (weights[0][i] == 0 || weights[1][i] == 0) weights[2][i] = 0;
    }
  }
  if (!some(form)) throw std::invalid_argument("[generate] no layer kind may be drawn");
  const bool several_streams = draw.chance(30, Feature::named_stream);
  const LayerKind flatten = layer_kind("flatten");
  const double flattened = form == Form::images ? 60 : form == Form::sequences ? 20 : 0;
  const int flatten_at =
      sizes == nullptr && draw.chance(flattened) && rows && draw.may(feature_of(flatten))
          ? draw.range(1, layers - 1)
          : -1;
  std::array<std::int64_t, 2> palette{};
  for (std::int64_t& width : palette) width = draw.range(1, 12);
  c.input = draw_input(draw, palette[0], form);
  const bool tokens = form == Form::sequences && draw.chance(30, feature_of(token_kind())) &&
                      draw.may(Feature::frozen_input);
  if (tokens) {
    c.input.resize(2);
    c.protocol.input_requires_grad = false;
  }
  if (dimensions != nullptr) {
    c.input.resize(1);
    for (int i = dimensions->range(4, 7); i > 0; --i) c.input.push_back(dimensions->range(1, 3));
    if (c.input.back() == c.input.end()[-2]) ++c.input.back();
  } else if (sizes != nullptr) {
    enlarge(*sizes, form, c, palette[0], weights[0]);
  }
  c.layers.reserve(static_cast<std::size_t>(layers));
  if (!tokens && draw.chance(14, Feature::several_inputs)) c.further_inputs = draw.range(1, 2);
  ModelDraw model(draw, c.input, c.layers, c.protocol.train, c.further_inputs);
  model.palette = palette;
  model.several_streams = several_streams;
  if (tokens) layer_of(token_kind()).draw(model, token_kind());
  // One of two models reads them where it may, the other before anything else.
  if (c.further_inputs > 0 && draw.chance(50)) {
    draw_readers(draw, model, c.further_inputs, weights[static_cast<std::size_t>(form)]);
  }
  for (int i = static_cast<int>(c.layers.size()); i < layers; ++i) {
    if (i == flatten_at) {
      model.append(flatten);
      continue;
    }
    const auto at = static_cast<std::size_t>(form_of(model.x()));
    const auto kind = static_cast<LayerKind>(draw.weighted(weights[at]));
    layer_of(kind).draw(model, kind);
  }
  drop_unread_inputs(c);
  if (c.further_inputs > 0) {
    c.protocol.further_inputs_with_grad = draw.range(0, c.further_inputs);
  }
  freeze(draw, c);
  set_modes(draw, c);
}

}  // namespace rematch
