#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/forecast/forecast.h"
#include "properties/layers/layer.h"

namespace rematch::testing {

/// A layer of that kind; a probability is 1/2.
inline LayerSpec layer(std::string_view kind) {
  LayerSpec spec;
  spec.kind = layer_kind(kind);
  spec.p = layer_of(spec).simple_p;
  return spec;
}

inline LayerSpec dense(std::int64_t width) {
  LayerSpec spec = layer("linear");
  spec.features = width;
  return spec;
}

inline LayerSpec tied(std::int64_t width, int owner) {
  LayerSpec spec = dense(width);
  spec.tied_to = owner;
  return spec;
}

inline LayerSpec joined(std::string_view kind, ValueRef from) {
  LayerSpec spec = layer(kind);
  spec.from = {from};
  return spec;
}

inline Case case_of(std::vector<std::int64_t> input, std::vector<LayerSpec> layers) {
  Case c;
  c.input = std::move(input);
  c.layers = std::move(layers);
  return c;
}

/// `count` layers of tanh on an input that requires grad: each saves its output.
inline Case tanh_chain(int count) {
  Case c = case_of({2, 3}, std::vector<LayerSpec>(static_cast<std::size_t>(count), layer("tanh")));
  c.protocol.input_requires_grad = true;
  return c;
}

inline SegmentSpec segment(int begin, int end, Variant variant,
                           std::vector<SegmentSpec> nested = {}) {
  SegmentSpec s;
  s.begin = begin;
  s.end = end;
  s.choice.variant = variant;
  s.nested = std::move(nested);
  return s;
}

inline Forecast forecast_of(const Case& c) { return forecast(c, validate(c)); }

}  // namespace rematch::testing
