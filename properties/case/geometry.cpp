#include "properties/case/geometry.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "properties/case/rules.h"

namespace rematch {

Geometry validate(const Case& c) {
  if (c.dtype != DType::float32 && c.dtype != DType::float64) {
    throw std::invalid_argument("[case] dtype: expected float32 or float64, got " +
                                std::string(to_string(c.dtype)));
  }
  if (c.layers.empty() || c.layers.size() > static_cast<std::size_t>(kMaxLayers)) {
    throw std::invalid_argument("[case] layers: expected 1.." + std::to_string(kMaxLayers) +
                                " layers, got " + std::to_string(c.layers.size()));
  }
  Geometry g;
  check_inputs(c);
  ShapeWalk walk(c.input, c.further_inputs, c.layers, c.protocol.train, g);
  for (std::size_t i = 0; i < c.layers.size(); ++i) walk.step();
  check_plan(c);
  check_protocol(c);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (!c.layers[i].in_place) continue;
    if (const char* hazard = in_place_hazard(c, static_cast<int>(i))) {
      throw std::invalid_argument("[case] layer " + std::to_string(i) + " (" +
                                  std::string(to_string(c.layers[i].kind)) + "): in_place " +
                                  hazard);
    }
  }
  find_live_values(c.layers, g);
  return g;
}

std::vector<int> roots_of(const Case& c, const std::vector<bool>& output_flags) {
  std::vector<int> roots;
  const std::size_t losses = c.protocol.auxiliary_losses ? output_flags.size() : 1;
  for (std::size_t i = 0; i < losses; ++i) {
    if (output_flags[i]) roots.push_back(static_cast<int>(i));
  }
  return roots;
}

int backward_calls(const Case& c, const Geometry& geometry) {
  const auto trained = std::count_if(geometry.parameters.begin(), geometry.parameters.end(),
                                     [](const ParameterInfo& p) { return !p.frozen; }) +
                       (c.protocol.input_requires_grad ? 1 : 0) +
                       c.protocol.further_inputs_with_grad;
  return c.protocol.backwards * (c.protocol.partial && trained > 1 ? 2 : 1);
}

int streams_of(const Case& c) {
  int last = 0;
  for (const LayerSpec& l : c.layers) last = std::max(last, l.stream);
  return last + 1;
}

std::vector<SegmentSpec> segments_of(const Case& c) {
  if (!c.plan.sequential) return c.plan.segments;
  const SequentialSpec& s = *c.plan.sequential;
  const int layers = static_cast<int>(c.layers.size());
  const int size = layers / s.segments;
  std::vector<SegmentSpec> segments;
  segments.reserve(static_cast<std::size_t>(s.segments));
  for (int i = 0; i + 1 < s.segments; ++i) {
    segments.push_back({i * size, (i + 1) * size, s.choice, {}});
  }
  if (!s.last_stored) segments.push_back({(s.segments - 1) * size, layers, s.choice, {}});
  return segments;
}

}  // namespace rematch
