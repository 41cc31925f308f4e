#include "properties/forecast/sums.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace rematch {

bool sums_across_segments(const Case& c, const Geometry& geometry, const Facts& facts) {
  using Name = std::pair<int, int>;
  const auto name_of = [](const ValueRef& v) { return Name(v.layer, v.output); };
  // An identity hands on its operand under another name.
  std::map<Name, Name> origins;
  const auto origin_of = [&](const ValueRef& v) {
    const auto found = origins.find(name_of(v));
    return found == origins.end() ? name_of(v) : found->second;
  };
  std::map<Name, std::vector<int>> values;
  std::map<int, std::vector<int>> parameters;
  for (int i = 0; i < static_cast<int>(c.layers.size()); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const LayerSpec& spec = c.layers[at];
    const ValueRef& operand = geometry.live[at].front();
    if (facts.of(i).identity || facts.of(i).aliases_operand) {
      for (int output = 0; output < 2; ++output) origins[{i, output}] = origin_of(operand);
      continue;
    }
    values[origin_of(operand)].push_back(i);
    for (const ValueRef& v : spec.from) values[origin_of(v)].push_back(i);
    for (const int p : geometry.layer_parameters[at]) parameters[p].push_back(i);
  }
  const auto crosses = [](const SegmentSpec& s, const std::vector<int>& uses) {
    const auto inside = std::count_if(uses.begin(), uses.end(),
                                      [&](int layer) { return s.begin <= layer && layer < s.end; });
    return inside > 0 && inside < static_cast<std::ptrdiff_t>(uses.size());
  };
  std::vector<SegmentSpec> segments = segments_of(c);
  while (!segments.empty()) {
    const SegmentSpec segment = std::move(segments.back());
    segments.pop_back();
    // A value that enters or leaves under two names gets two gradients.
    for (const int border : {segment.begin, segment.end}) {
      std::set<Name> known;
      for (const ValueRef& v : geometry.live[static_cast<std::size_t>(border)]) {
        if (!known.insert(origin_of(v)).second) return true;
      }
    }
    for (const auto& [value, uses] : values) {
      if (crosses(segment, uses)) return true;
    }
    for (const auto& [parameter, uses] : parameters) {
      // Two summands have one order.
      if (uses.size() > 2 && crosses(segment, uses)) return true;
    }
    segments.insert(segments.end(), segment.nested.begin(), segment.nested.end());
  }
  return false;
}

}  // namespace rematch
