#include "properties/laws/support.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/layers/layer.h"

namespace rematch {

std::string place_of(int step, int microbatch) {
  return "step " + std::to_string(step) + ", microbatch " + std::to_string(microbatch);
}

std::string layer_name(const Case& c, int layer) {
  // A record may tell of layers that do not exist.
  const bool known = layer >= 0 && layer < static_cast<int>(c.layers.size());
  return "layer " + std::to_string(layer) + " (" +
         (known ? std::string(to_string(c.layers[static_cast<std::size_t>(layer)].kind)) : "none") +
         ")";
}

std::string place_of(const Case& c, int step, int microbatch, int layer) {
  return place_of(step, microbatch) + ", " + layer_name(c, layer);
}

std::string parameter_name(const Case& c, const Geometry& geometry, int parameter) {
  const ParameterInfo& info = geometry.parameters[static_cast<std::size_t>(parameter)];
  const LayerKind kind = c.layers[static_cast<std::size_t>(info.layer)].kind;
  return "parameter " + std::to_string(parameter) + " (layer " + std::to_string(info.layer) + " " +
         std::string(to_string(kind)) + " " + std::string(info.role) + ")";
}

bool comparable_forward(const Evidence& e, int step, int microbatch) {
  if (e.forecast.values_comparable) return true;
  return step == 0 && (microbatch == 0 || e.c.protocol.forwards_first);
}

double distance(std::span<const double> expected, std::span<const double> got) {
  // Where terms of about 1 cancel, only their roundings are left, 2^-24 of a term in float32: the
  // difference of two orders of a few of them is then below 2^-20, 1/1024 of this.
  double largest = 0x1p-10;
  double difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double a = expected[i];
    const double b = got[i];
    const bool same = a == b || (std::isnan(a) && std::isnan(b));
    if (!same && !std::isfinite(a - b)) return std::numeric_limits<double>::infinity();
    if (!same) difference = std::max(difference, std::fabs(a - b));
    if (std::isfinite(a)) largest = std::max(largest, std::fabs(a));
  }
  return difference / largest;
}

std::int64_t saved_per_forward(const Evidence& e, std::int64_t forecast) {
  if (!e.forecast.measured) return forecast;
  for (const ByteReading& r : e.plain.bytes) {
    if (r.moment != Moment::after_forward) continue;
    return r.saved - (e.forecast.plain_saved_bytes - forecast);
  }
  return forecast;
}

namespace {

bool keeps_results(const std::vector<SegmentSpec>& segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return !s.choice.keep.empty() || keeps_results(s.nested);
  });
}

}  // namespace

bool hides_inputs(const std::vector<SegmentSpec>& segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return s.choice.arguments != Arguments::tensors || hides_inputs(s.nested);
  });
}

bool knows_saved_bytes(const Evidence& e) {
  if (!e.forecast.bytes_known) return false;
  if (!e.forecast.measured) return e.forecast.saves_known;
  return e.forecast.saves_known && !keeps_results(segments_of(e.c)) &&
         !policy_may_keep(e.c.options) && !may_keep_states(e) && !saves_may_vary(e) &&
         !hides_inputs(e.c.plan.segments);
}

bool shows_saved(const Evidence& e) {
  return e.observed.contains(Observable::saved_tensors) &&
         e.observed.contains(Observable::saved_bytes) && !saves_may_vary(e);
}

bool may_keep_states(const Evidence& e) {
  return e.forecast.measured &&
         std::any_of(e.c.layers.begin(), e.c.layers.end(),
                     [](const LayerSpec& l) { return layer_of(l).reads_state; });
}

namespace {

bool has_layer_whose_saves_vary(const Case& c) {
  return std::any_of(c.layers.begin(), c.layers.end(), [&](const LayerSpec& l) {
    return layer_of(l).saves_vary(l, c.protocol.train);
  });
}

}  // namespace

bool saves_may_vary(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  if (!e.forecast.measured || (p.steps == 1 && p.microbatches == 1)) return false;
  return has_layer_whose_saves_vary(e.c);
}

bool resaves_may_vary(const Evidence& e) {
  if (!has_layer_whose_saves_vary(e.c)) return false;
  if (!e.forecast.values_comparable || !e.observed.contains(Observable::recomputed_values)) {
    return true;
  }
  return find_law("recomputed-values")->check(e).has_value();
}

}  // namespace rematch
