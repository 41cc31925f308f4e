#include <algorithm>
#include <utility>

#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kPeakBytes = "peak-bytes";

std::optional<Violation> check_peak_bytes(const Evidence& e) {
  // Bytes that were live when early stop left a layer: the next peak begins with them.
  std::int64_t left = 0;
  return judge_events(
      e, kPeakBytes,
      [&](const ForecastEvent& wanted, const LiveReading* got, std::string_view run,
          std::size_t number) -> std::optional<Violation> {
        const std::int64_t before =
            std::exchange(left, wanted->stops && got != nullptr ? got->live : 0);
        const std::int64_t expected = std::max(wanted->peak, before);
        if (got != nullptr && got->peak == expected) return std::nullopt;
        return Violation{
            kPeakBytes, "since the event before " + place_of(e.c, wanted.in_step(), run, number),
            std::to_string(expected) + " bytes",
            got != nullptr ? std::to_string(got->peak) + " bytes" : std::string(kNotRecorded)};
      });
}

}  // namespace

extern const Law peak_bytes_law;
const Law peak_bytes_law{.name = kPeakBytes,
                         .statement =
                             "Between two events, the peak of live bytes is exactly what the "
                             "forecast counts. (Where early stop leaves a layer, its results may "
                             "be part of it.) The peak of a step is the highest of these.",
                         .harm = "The run needs more memory than planned and may run out of it.",
                         .topic = Topic::memory,
                         .check = check_peak_bytes,
                         .reads = {Observable::live_bytes},
                         .applies = [](const Evidence& e) { return e.forecast.saves_known; }};

}  // namespace rematch
