#include <algorithm>
#include <utility>

#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "peak-bytes";

std::optional<Breach> check(const Evidence& e) {
  // What a layer that early stop left had at its most, where its results may be live into what
  // follows: promised, and got.
  std::int64_t carried = 0;
  std::int64_t carried_got = 0;
  return judge_events(
      e, kName,
      [&](const Promise& wanted, const LiveReading* got, std::string_view run,
          std::size_t number) -> std::optional<Breach> {
        const std::int64_t before = std::exchange(carried, wanted->stops ? wanted->peak : 0);
        const std::int64_t before_got =
            std::exchange(carried_got, wanted->stops && got != nullptr ? got->peak : 0);
        if (got != nullptr && std::max(got->peak, before_got) == std::max(wanted->peak, before)) {
          return std::nullopt;
        }
        return Breach{
            kName, "since the event before " + place_of(e.c, wanted.in_step(), run, number),
            std::to_string(wanted->peak) + " bytes",
            got != nullptr ? std::to_string(got->peak) + " bytes" : std::string(kNotRecorded)};
      });
}

}  // namespace

extern const Law peak_bytes_law;
const Law peak_bytes_law{
    kName,
    "Between one event and the next no more bytes are live at once than the forecast counts, and "
    "no fewer: the peak of a step is the highest of them.",
    check, Needs::events};

}  // namespace rematch
