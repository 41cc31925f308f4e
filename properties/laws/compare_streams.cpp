#include <algorithm>

#include "properties/laws/support.h"

namespace rematch {
namespace {

std::string text_of(const StreamReading& r) {
  return "seed " + std::to_string(r.seed) + ", offset " + std::to_string(r.offset);
}

}  // namespace

std::optional<Violation> compare_streams(const Evidence& e, Moment moment, std::string_view law) {
  // Every record has the default stream; how many more there are, the records tell.
  int streams = 1;
  for (const Record* record : {&e.plain, &e.checkpointed}) {
    for (const StreamReading& r : record->streams) streams = std::max(streams, r.stream + 1);
  }
  Finder plain(e.plain.streams);
  Finder checkpointed(e.checkpointed.streams);
  const auto judge_at = [&](int step, int microbatch) -> std::optional<Violation> {
    const bool comparable = moment == Moment::after_forward
                                ? comparable_forward(e, step, microbatch)
                                : e.forecast.values_comparable;
    for (int stream = 0; comparable && stream < streams; ++stream) {
      const auto here = [&](const StreamReading& r) {
        return r.moment == moment && r.step == step && r.microbatch == microbatch &&
               r.stream == stream;
      };
      const StreamReading* expected = plain.find(here);
      const StreamReading* got = checkpointed.find(here);
      if (expected != nullptr && got != nullptr && *expected == *got) continue;
      return Violation{law, place_of(step, microbatch) + ", stream " + std::to_string(stream),
                       expected != nullptr ? text_of(*expected) : "a reading in both runs",
                       got != nullptr ? text_of(*got) : std::string(kNotRecorded)};
    }
    return std::nullopt;
  };
  if (moment != Moment::after_step) return for_each_forward(e.c.protocol, judge_at);
  for (int step = 0; step < e.c.protocol.steps; ++step) {
    if (std::optional<Violation> violation = judge_at(step, 0)) return violation;
  }
  return std::nullopt;
}

}  // namespace rematch
