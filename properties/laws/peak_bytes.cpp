#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "peak-bytes";

std::optional<Breach> compare(const Evidence& e, const std::vector<LiveReading>& expected,
                              const Record& record, std::string_view run) {
  const auto judge = [&](const Promise* wanted, const LiveReading* got,
                         std::size_t number) -> std::optional<Breach> {
    if (wanted == nullptr) {
      return Breach{kName, "events of the " + std::string(run), std::to_string(number),
                    std::to_string(record.live.size())};
    }
    const LiveReading& promised = *wanted->reading;
    if (got != nullptr && got->peak == promised.peak) return std::nullopt;
    return Breach{
        kName, "since the event before " + place_of(e.c, wanted->in_step(), run, number),
        std::to_string(promised.peak) + " bytes",
        got != nullptr ? std::to_string(got->peak) + " bytes" : std::string(kNotRecorded)};
  };
  return for_each_event(expected, record.live, e.c.protocol.steps, any_event, judge);
}

std::optional<Breach> check(const Evidence& e) {
  if (auto b = compare(e, e.forecast.live, e.checkpointed, "checkpointed run")) return b;
  return compare(e, e.forecast.plain_live, e.plain, "plain run");
}

}  // namespace

extern const Law peak_bytes_law;
const Law peak_bytes_law{
    kName,
    "Between one event and the next no more bytes are live at once than the forecast counts, and "
    "no fewer: the peak of a step is the highest of them.",
    check, Needs::events};

}  // namespace rematch
