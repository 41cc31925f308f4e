#include "properties/forecast/byte_rules.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine/cpu/conv2d.h"
#include "properties/case/rules.h"

namespace rematch {
namespace {

/// The workspace of the CPU's convolutions is whatever the kernels ask for: a number of their own,
/// of the shape alone. (golden/steps holds it to what was approved.)
std::int64_t conv_scratch(const LayerSpec& spec, const Shape& x, const Shape& y) {
  return cpu::conv2d_scratch_elements({.n = x[0],
                                       .c = x[1],
                                       .h = x[2],
                                       .w = x[3],
                                       .out_c = y[1],
                                       .kh = spec.kernel,
                                       .kw = spec.kernel,
                                       .stride_h = spec.stride,
                                       .stride_w = spec.stride,
                                       .pad_h = spec.padding,
                                       .pad_w = spec.padding});
}

Vjp vjp_of(const LayerSpec& spec) {
  switch (spec.kind) {
    case LayerKind::linear:
    case LayerKind::conv2d:
      return Vjp::product;
    case LayerKind::add:
    case LayerKind::gaussian_noise:
      return Vjp::share;
    case LayerKind::split:
      return Vjp::join;
    default:
      return Vjp::pointwise;
  }
}

int extras_of(const LayerSpec& spec, bool train) {
  switch (spec.kind) {
    case LayerKind::batch_norm:
    case LayerKind::layer_norm:
      return 2;
    case LayerKind::max_pool2d:
    case LayerKind::dropout:
      return 1;
    case LayerKind::rrelu:
      return train ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace

ByteRule byte_rule_of(const Case& c, const Geometry& geometry, int layer, bool host_kernels) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerSpec& spec = c.layers[index];
  const Shape input{std::span(c.input)};
  const Shape& x = geometry.shape_of({layer - 1, 0}, input);
  const auto& outputs = geometry.outputs[index];

  ByteRule rule;
  rule.vjp = vjp_of(spec);
  rule.extras = extras_of(spec, c.protocol.train);
  rule.operands[0] = x.elements();
  if (spec.from) {
    rule.operands[1] = geometry.shape_of(*spec.from, input).elements();
    const auto& live = geometry.live[index];
    rule.other = static_cast<int>(std::find(live.begin(), live.end(), *spec.from) - live.begin());
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) rule.outputs[k] = outputs[k].elements();
  std::size_t position = 0;
  for (const int p : geometry.layer_parameters[index]) {
    rule.parameters[position++] = geometry.parameters[static_cast<std::size_t>(p)].shape.elements();
  }
  if (spec.kind == LayerKind::conv2d && host_kernels) {
    rule.scratch = conv_scratch(spec, x, outputs[0]);
  }
  return rule;
}

}  // namespace rematch
