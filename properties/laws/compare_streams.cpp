#include "properties/laws/support.h"

namespace rematch {
namespace {

std::string text_of(const StreamReading& r) {
  return "seed " + std::to_string(r.seed) + ", offset " + std::to_string(r.offset);
}

}  // namespace

std::optional<Breach> compare_streams(const Evidence& e, Moment moment, std::string_view law) {
  const auto judge_at = [&](int step, int pass) -> std::optional<Breach> {
    const bool fresh_draws_before = moment == Moment::after_forward
                                        ? !comparable_forward(e, step, pass)
                                        : !e.forecast.values_comparable;
    if (fresh_draws_before) return std::nullopt;
    // Every record has the default stream; how many more there are, the plain one tells.
    Finder plain(e.plain.streams);
    Finder checkpointed(e.checkpointed.streams);
    for (int stream = 0;; ++stream) {
      const auto here = [&](const StreamReading& r) {
        return r.moment == moment && r.step == step && r.pass == pass && r.stream == stream;
      };
      const StreamReading* expected = plain.find(here);
      const StreamReading* got = checkpointed.find(here);
      if (expected == nullptr && got == nullptr && stream > 0) return std::nullopt;
      if (expected != nullptr && got != nullptr && *expected == *got) continue;
      return Breach{law, place_of(step, pass) + ", stream " + std::to_string(stream),
                    expected != nullptr ? text_of(*expected) : "a reading in both runs",
                    got != nullptr ? text_of(*got) : std::string(kNotRecorded)};
    }
  };
  if (moment != Moment::after_step) return for_each_forward(e.c.protocol, judge_at);
  for (int step = 0; step < e.c.protocol.steps; ++step) {
    if (std::optional<Breach> breach = judge_at(step, 0)) return breach;
  }
  return std::nullopt;
}

}  // namespace rematch
