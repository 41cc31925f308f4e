#include "properties/forecast/layer_rules.h"

#include <cstddef>

#include "properties/case/policy.h"

namespace rematch {
namespace {

std::uint64_t whole_blocks(std::int64_t elements) {
  return (static_cast<std::uint64_t>(elements) + 3) / 4 * 4;
}

const Shape& operand_shape(const Geometry& geometry, int layer, const Shape& input) {
  return geometry.shape_of({layer - 1, 0}, input);
}

void set_kind(LayerRule& rule, const LayerSpec& spec, const Shape& x, const Shape& y, bool train,
              std::int64_t item) {
  switch (spec.kind) {
    case LayerKind::linear:
    case LayerKind::conv2d:
      rule.saves_input = SavesInput::for_weight_gradient;
      rule.saves_weight = true;
      break;
    case LayerKind::max_pool2d:
      rule.extra_bytes = y.elements() * static_cast<std::int64_t>(sizeof(std::int32_t));
      break;
    case LayerKind::batch_norm:
      rule.saves_input = SavesInput::always;
      rule.saves_weight = true;
      rule.extra_bytes = 2 * x[1] * item;
      break;
    case LayerKind::layer_norm: {
      const std::int64_t width = x[x.rank() - 1];
      rule.saves_input = SavesInput::always;
      rule.saves_weight = true;
      rule.extra_bytes = 2 * (width == 0 ? 0 : x.elements() / width) * item;
      break;
    }
    case LayerKind::relu:
      rule.saves_output = true;
      rule.aliases_input = spec.in_place;
      break;
    case LayerKind::gelu:
      rule.saves_input = SavesInput::always;
      break;
    case LayerKind::tanh:
    case LayerKind::sigmoid:
    case LayerKind::softmax:
      rule.saves_output = true;
      break;
    case LayerKind::dropout:
      rule.identity = !train || spec.p == 0;
      rule.extra_bytes = x.elements();
      break;
    case LayerKind::gaussian_noise:
      rule.identity = !train || spec.p == 0;
      break;
    case LayerKind::rrelu:
      if (train) {
        rule.extra_bytes = x.elements() * item;
      } else {
        rule.saves_input = SavesInput::always;
      }
      break;
    case LayerKind::flatten:
      rule.identity = x.rank() == 2;
      rule.aliases_input = true;
      break;
    case LayerKind::duplicate:
      rule.identity = true;
      break;
    case LayerKind::avg_pool2d:
    case LayerKind::add:
    case LayerKind::concat:
    case LayerKind::split:
      break;
  }
  const bool random = spec.kind == LayerKind::dropout || spec.kind == LayerKind::rrelu ||
                      spec.kind == LayerKind::gaussian_noise;
  if (random && train && !rule.identity) rule.words = whole_blocks(x.elements());
}

}  // namespace

LayerRule rule_of(const Case& c, const Geometry& geometry, int layer) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerSpec& spec = c.layers[index];
  const Shape input = layer == 0 ? Shape(std::span(c.input)) : Shape();
  const Shape& x = operand_shape(geometry, layer, input);
  const auto& outputs = geometry.outputs[index];
  const auto item = static_cast<std::int64_t>(size_of(c.dtype));

  LayerRule rule;
  set_kind(rule, spec, x, outputs[0], c.protocol.train, item);
  rule.computes = !op_of(c, layer).empty();
  rule.stream = spec.stream;
  rule.low = c.protocol.autocast != AutocastSpan::off && rule.saves_weight &&
             rule.saves_input == SavesInput::for_weight_gradient;
  rule.operand_elements[0] = x.elements();
  if (spec.from && spec.from->layer >= 0) {
    rule.operand_elements[1] = geometry.shape_of(*spec.from, input).elements();
  }
  rule.outputs = static_cast<int>(outputs.size());
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    rule.output_bytes[k] = outputs[k].elements() * (rule.low ? 2 : item);
  }
  rule.operands[0] = value_index({layer - 1, 0});
  if (spec.from) rule.operands[1] = value_index(*spec.from);
  rule.parameters = geometry.layer_parameters[index];
  if (!rule.parameters.empty()) {
    const int weight = rule.parameters.front();
    rule.weight_elements = geometry.parameters[static_cast<std::size_t>(weight)].shape.elements();
  }
  for (const int p : rule.parameters) {
    rule.trainable = rule.trainable || !geometry.parameters[static_cast<std::size_t>(p)].frozen;
  }
  return rule;
}

}  // namespace rematch
