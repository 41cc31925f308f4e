#include "properties/case/policy.h"

#include <algorithm>
#include <span>

#include "properties/case/geometry.h"
#include "properties/layers/layer.h"

namespace rematch {

bool kept_by_policy(const Case& c, const SegmentSpec& s, int layer, std::size_t op) {
  const auto ops_at = [&](int i) {
    return ops_of(c.layers[static_cast<std::size_t>(i)], c.protocol.train);
  };
  const std::span ops = ops_at(layer);
  const std::string_view name = ops[op];
  auto index = std::count(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(op), name);
  for (int i = s.begin; i < layer; ++i)
    index += std::count(ops_at(i).begin(), ops_at(i).end(), name);
  return std::any_of(s.choice.keep.begin(), s.choice.keep.end(), [&](const KeepSpec& k) {
    return k.op == name && (k.index < 0 || k.index == index);
  });
}

bool kept_by_policy(const Case& c, const SegmentSpec& s, int layer) {
  if (s.choice.keep.empty()) return false;
  const auto ops = ops_of(c.layers[static_cast<std::size_t>(layer)], c.protocol.train).size();
  for (std::size_t op = 0; op < ops; ++op) {
    if (!kept_by_policy(c, s, layer, op)) return false;
  }
  return ops > 0;
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
