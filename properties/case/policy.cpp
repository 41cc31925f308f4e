#include "properties/case/policy.h"

#include <algorithm>
#include <span>

#include "properties/case/geometry.h"

namespace rematch {

std::string_view op_of(const Case& c, int layer) {
  const LayerSpec& l = c.layers[static_cast<std::size_t>(layer)];
  switch (l.kind) {
    case LayerKind::flatten:
    case LayerKind::duplicate:
      return {};
    case LayerKind::relu:
      if (l.in_place) return {};
      break;
    case LayerKind::dropout:
    case LayerKind::gaussian_noise:
      if (!c.protocol.train || l.p == 0) return {};
      break;
    case LayerKind::rrelu:
      if (!c.protocol.train) return "leaky_relu";
      break;
    default:
      break;
  }
  return to_string(l.kind);
}

bool kept_by_policy(const Case& c, const SegmentSpec& s, int layer) {
  if (s.choice.keep.empty()) return false;
  const std::string_view op = op_of(c, layer);
  if (op.empty()) return false;
  int index = 0;
  for (int i = s.begin; i < layer; ++i) index += op_of(c, i) == op ? 1 : 0;
  return std::any_of(s.choice.keep.begin(), s.choice.keep.end(), [&](const KeepSpec& k) {
    return to_string(k.kind) == op && (k.index < 0 || k.index == index);
  });
}

namespace {

bool kept_within(const Case& c, std::span<const SegmentSpec> segments, int layer) {
  return std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
    if (layer < s.begin || layer >= s.end) return false;
    return kept_by_policy(c, s, layer) || kept_within(c, s.nested, layer);
  });
}

}  // namespace

bool kept_by_policy(const Case& c, int layer) {
  if (!c.plan.sequential) return kept_within(c, c.plan.segments, layer);
  return !c.plan.sequential->choice.keep.empty() && kept_within(c, segments_of(c), layer);
}

}  // namespace rematch
