#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rematch::compare {

/// The bytes that lived over a step, one value per allocation event.
struct Timeline {
  std::vector<std::int64_t> live;
  /// The first event of each phase, with its name: forward, backward, step.
  std::vector<std::pair<std::size_t, std::string>> phases;
  std::int64_t peak = 0;
};

/// The timelines of one step on both sides.
struct TimelinePair {
  std::string name;
  std::optional<Timeline> base;
  std::optional<Timeline> head;
};
using TimelinePairs = std::vector<TimelinePair>;

/// Reads what `rematch show --json` prints, named "checkpointed step", or an object of such by
/// name, as `rematch-bench --timelines FILE` writes it. Throws InputError for anything else.
std::map<std::string, Timeline> read_timelines(const std::string& path);

/// Pairs by name, in the order of names.
TimelinePairs pair_timelines(const std::map<std::string, Timeline>& base,
                             const std::map<std::string, Timeline>& head);

}  // namespace rematch::compare
