#include <algorithm>

#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "one-segment-alive";

/// Ends a backward or what comes before one, for this law.
bool begins_anew(const LiveReading& r) {
  return r.event == Event::forward || r.event == Event::backward || r.event == Event::graph ||
         r.event == Event::step;
}

// What a run holds beyond the forecast when a replay begins: it may not grow from one replay to the
// next. What was there before the first replay is the business of other laws.
std::optional<Breach> check(const Evidence& e) {
  std::int64_t before = 0;
  std::size_t replay = 0;
  std::optional<Breach> breach;
  for_each_event(e.forecast.live, e.checkpointed.live, std::min(e.c.protocol.steps, 2),
                 [&](const LiveReading* wanted, const LiveReading* got,
                     std::size_t number) -> std::optional<Breach> {
                   if (wanted == nullptr || got == nullptr || breach) return Breach{};
                   const auto& replays = e.forecast.replays;
                   while (replay < replays.size() && replays[replay] < number) ++replay;
                   const bool begins = replay < replays.size() && replays[replay] == number;
                   if (begins && wanted->event == Event::layer && got->event == Event::layer) {
                     const std::int64_t beyond = got->entered - wanted->entered;
                     if (beyond > before) {
                       breach = Breach{kName,
                                       "when a replay begins, before " +
                                           place_of(e.c, *wanted, "checkpointed run", number),
                                       std::to_string(wanted->entered + before) + " bytes",
                                       std::to_string(got->entered) + " bytes"};
                     }
                   }
                   if (begins_anew(*wanted)) before = got->live - wanted->live;
                   return std::nullopt;
                 });
  return breach;
}

}  // namespace

extern const Law one_segment_alive_law;
const Law one_segment_alive_law{
    kName,
    "When the replay of a segment begins, nothing is live any more that the replay of another one "
    "recomputed and the forecast does not count as handed on.",
    check};

}  // namespace rematch
