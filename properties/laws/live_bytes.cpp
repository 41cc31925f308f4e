#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kLiveBytes = "live-bytes";

std::string text_of(const LiveReading& r) {
  std::string text = std::to_string(r.live) + " bytes";
  if (r.offloaded != 0) text += ", " + std::to_string(r.offloaded) + " in host memory";
  return text;
}

bool is_live(const LiveReading& got, const LiveReading& expected) {
  if (expected.stops) return got.live >= expected.live && got.live <= expected.peak;
  return got.live == expected.live;
}

std::optional<Violation> check_live_bytes(const Evidence& e) {
  return judge_events(
      e, kLiveBytes,
      [&](const ForecastEvent& wanted, const LiveReading* got, std::string_view run,
          std::size_t number) -> std::optional<Violation> {
        const LiveReading& expected = *wanted.reading;
        if (got != nullptr && wanted.is_event_of(*got) && got->entered == expected.entered &&
            is_live(*got, expected) && got->offloaded == expected.offloaded) {
          return std::nullopt;
        }
        const std::string place = place_of(e.c, wanted.in_step(), run, number);
        if (got == nullptr)
          return Violation{kLiveBytes, place, text_of(expected), std::string(kNotRecorded)};
        if (!wanted.is_event_of(*got)) {
          return Violation{kLiveBytes, place, "this event",
                           place_of(got->step, got->microbatch) + ", " + event_name(e.c, *got)};
        }
        if (got->entered != expected.entered) {
          return Violation{kLiveBytes, place + ", when it was entered",
                           std::to_string(expected.entered) + " bytes",
                           std::to_string(got->entered) + " bytes"};
        }
        return Violation{kLiveBytes, place, text_of(expected), text_of(*got)};
      });
}

}  // namespace

extern const Law live_bytes_law;
const Law live_bytes_law{
    .name = kLiveBytes,
    .statement =
        "At every event of a run (after each layer, each node's backward, each gradient, each "
        "forward, backward and step), the live bytes are exactly those that the forecast counts. "
        "Where early stop leaves a layer, its results may be live as well.",
    .harm = "More memory is in use at some moment than planned.",
    .topic = Topic::memory,
    .check = check_live_bytes,
    .reads = {Observable::live_bytes},
    .applies = [](const Evidence& e) { return e.forecast.saves_known; }};

}  // namespace rematch
