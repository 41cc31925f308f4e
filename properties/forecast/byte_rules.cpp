#include "properties/forecast/byte_rules.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "properties/case/rules.h"

namespace rematch {
namespace {

/// Planes of a convolution's workspace: room for a vector past the end, and an odd number of cache
/// lines.
std::int64_t plane(std::int64_t elements) { return ((elements + 31) / 16 | 1) * 16; }

/// The workspace of the CPU's convolutions (engine/cpu/conv2d.cpp says what for): the largest of
/// those that forward, input gradient and weight gradient need.
std::int64_t conv_scratch(const LayerSpec& spec, const Shape& x, const Shape& y) {
  const std::int64_t stride = spec.stride;
  const std::int64_t channels = x[1];
  const std::int64_t features = y[1];
  const std::int64_t rows = (x[2] + 2 * spec.padding + stride - 1) / stride;
  const std::int64_t cols = (x[3] + 2 * spec.padding + stride - 1) / stride;
  const std::int64_t phase = rows * cols;
  const std::int64_t image_plane = plane(phase * stride * stride);
  const std::int64_t wide = (y[2] - 1) * cols + y[3];
  const std::int64_t lead = (spec.kernel - 1) / stride * (cols + 1);
  const std::int64_t gradient_plane = plane(lead + phase);
  const std::int64_t image = channels * image_plane + features * gradient_plane;
  const std::int64_t images = std::clamp<std::int64_t>((1 << 16) / image, 1, x[0]);
  const std::int64_t forward = channels * image_plane + features * ((wide + 7) / 8 * 8);
  const std::int64_t input_gradient = features * gradient_plane + channels * (phase + 16) +
                                      features * channels * spec.kernel * spec.kernel;
  return std::max({forward, input_gradient, images * image});
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
