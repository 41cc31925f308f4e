#include "bench/compare/timelines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/compare/input.h"

namespace rematch::compare {
namespace {

/// `shown` has a "timeline" whose points' fields its "timeline_fields" name, where it has them.
Timeline timeline_of(const Input& shown) {
  std::size_t live = 0;
  std::size_t phase = 4;  // As `rematch show` writes them: live, saved, layer, execution, phase.
  if (const auto fields = shown.find("timeline_fields")) {
    const std::vector<Input> names = fields->elements();
    const auto index_of = [&](std::string_view name) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i].text() == name) return i;
      }
      fields->fail(fmt::format("a field \"{}\"", name));
    };
    live = index_of("live");
    phase = index_of("phase");
  }
  Timeline timeline;
  for (const Input& point : shown.at("timeline").elements()) {
    const std::vector<Input> values = point.elements();
    if (values.size() <= std::max(live, phase)) {
      point.fail(fmt::format("at least {} values", std::max(live, phase) + 1));
    }
    const std::string name = values[phase].text();
    if (timeline.phases.empty() || timeline.phases.back().second != name) {
      timeline.phases.emplace_back(timeline.live.size(), name);
    }
    timeline.live.push_back(values[live].whole());
    timeline.peak = std::max(timeline.peak, timeline.live.back());
  }
  return timeline;
}

/// One step: as rematch-bench writes it, or what `rematch show --json` prints.
Timeline step_of(const Input& shown) {
  const auto checkpointed = shown.find("checkpointed");
  return timeline_of(checkpointed ? *checkpointed : shown);
}

}  // namespace

std::map<std::string, Timeline> read_timelines(const std::string& path) {
  const nlohmann::json json = parse_json(read_text(path), path);
  const Input root(json, path);
  if (root.find("checkpointed")) return {{"checkpointed step", step_of(root)}};
  std::map<std::string, Timeline> timelines;
  for (const auto& [name, shown] : root.fields()) timelines[name] = step_of(shown);
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
