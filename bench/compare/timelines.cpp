#include "bench/compare/timelines.h"

#include <algorithm>
#include <set>

#include "bench/compare/input.h"

namespace rematch::compare {
namespace {

Timeline timeline_of(const Input& shown) {
  Timeline timeline;
  for (const Input& point : shown.at("checkpointed").at("timeline").elements()) {
    const std::vector<Input> values = point.elements();
    // As in "timeline_fields": live, saved, layer, execution, phase.
    if (values.size() < 5) point.fail("[live, saved, layer, execution, phase]");
    const std::string phase = values[4].text();
    if (timeline.phases.empty() || timeline.phases.back().second != phase) {
      timeline.phases.emplace_back(timeline.live.size(), phase);
    }
    timeline.live.push_back(values[0].whole());
    timeline.peak = std::max(timeline.peak, timeline.live.back());
  }
  return timeline;
}

}  // namespace

std::map<std::string, Timeline> read_timelines(const std::string& path) {
  const nlohmann::json json = parse_json(read_text(path), path);
  const Input root(json, path);
  if (root.find("checkpointed")) return {{"checkpointed step", timeline_of(root)}};
  std::map<std::string, Timeline> timelines;
  for (const auto& [name, shown] : root.fields()) timelines[name] = timeline_of(shown);
  if (timelines.empty())
    root.fail("what `rematch show --json` prints, or an object of such by name");
  return timelines;
}

TimelinePairs pair_timelines(const std::map<std::string, Timeline>& base,
                             const std::map<std::string, Timeline>& head) {
  std::set<std::string> names;
  for (const auto& [name, timeline] : base) names.insert(name);
  for (const auto& [name, timeline] : head) names.insert(name);
  TimelinePairs pairs;
  for (const std::string& name : names) {
    TimelinePair pair;
    pair.name = name;
    if (const auto at = base.find(name); at != base.end()) pair.base = at->second;
    if (const auto at = head.find(name); at != head.end()) pair.head = at->second;
    pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace rematch::compare
