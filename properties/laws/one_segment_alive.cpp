#include <algorithm>

#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kOneSegmentAlive = "one-segment-alive";

// Bytes that a run holds beyond the forecast when a recomputation begins may not grow from one
// recomputation of a backward to the next. Other laws judge what was there at the first.
std::optional<Violation> check_one_segment_alive(const Evidence& e) {
  bool recomputed = false;
  std::int64_t first = 0;
  std::size_t recomputation = 0;
  const auto judge = [&](const ForecastEvent* expected, const LiveReading* got,
                         std::size_t number) -> std::optional<Violation> {
    // Events that are missing or too many are no business of this law.
    if (expected == nullptr || got == nullptr) return std::nullopt;
    const LiveReading* const wanted = expected->reading;
    const std::vector<std::size_t>& recomputations = e.forecast.recomputations;
    while (recomputation < recomputations.size() && recomputations[recomputation] < number)
      ++recomputation;
    const bool begins =
        recomputation < recomputations.size() && recomputations[recomputation] == number;
    if (begins && wanted->event == Event::layer && got->event == Event::layer) {
      const std::int64_t beyond = got->entered - wanted->entered;
      if (recomputed && beyond > first) {
        return Violation{kOneSegmentAlive,
                         "when a recomputation begins, before " +
                             place_of(e.c, expected->in_step(), "checkpointed run", number),
                         std::to_string(wanted->entered + first) + " bytes",
                         std::to_string(got->entered) + " bytes"};
      }
      if (!recomputed) first = beyond;
      recomputed = true;
    }
    if (wanted->event == Event::backward || wanted->event == Event::graph) recomputed = false;
    return std::nullopt;
  };
  return for_each_event(e.forecast.live, e.checkpointed.live, std::min(e.c.protocol.steps, 2),
                        any_event, judge);
}

bool applies_one_segment_alive(const Evidence& e) {
  if (!e.forecast.saves_known) return false;
  return e.forecast.recomputations.size() > 1;
}

}  // namespace

extern const Law one_segment_alive_law;
const Law one_segment_alive_law{
    .name = kOneSegmentAlive,
    .statement =
        "When a recomputation begins, nothing that an earlier recomputation of the same backward "
        "computed is still live, except what the forecast says is passed along.",
    .harm = "Several segments are alive at once, so the peak of memory is higher than planned.",
    .topic = Topic::memory,
    .check = check_one_segment_alive,
    .reads = {Observable::live_bytes},
    .applies = applies_one_segment_alive};

}  // namespace rematch
