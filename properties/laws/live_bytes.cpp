#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "live-bytes";

std::string text_of(const LiveReading& r) {
  std::string text = std::to_string(r.live) + " bytes";
  if (r.offloaded != 0) text += ", " + std::to_string(r.offloaded) + " in host memory";
  return text;
}

std::optional<Breach> compare(const Evidence& e, const std::vector<LiveReading>& expected,
                              const Record& record, std::string_view run) {
  return for_each_event(
      expected, record.live, e.c.protocol.steps,
      [&](const LiveReading* wanted, const LiveReading* got,
          std::size_t number) -> std::optional<Breach> {
        if (wanted == nullptr) {
          return Breach{kName, "events of the " + std::string(run), std::to_string(number),
                        std::to_string(record.live.size())};
        }
        const std::string_view missing = kNotRecorded;
        if (got == nullptr) {
          return Breach{kName, place_of(e.c, *wanted, run, number), text_of(*wanted),
                        std::string(missing)};
        }
        if (got->event != wanted->event || got->step != wanted->step || got->pass != wanted->pass ||
            got->layer != wanted->layer || got->execution != wanted->execution) {
          return Breach{kName, place_of(e.c, *wanted, run, number), "this event",
                        event_name(e.c, *got)};
        }
        if (got->entered != wanted->entered) {
          return Breach{kName, "before " + place_of(e.c, *wanted, run, number),
                        std::to_string(wanted->entered) + " bytes",
                        std::to_string(got->entered) + " bytes"};
        }
        if (got->live == wanted->live && got->offloaded == wanted->offloaded) return std::nullopt;
        return Breach{kName, place_of(e.c, *wanted, run, number), text_of(*wanted), text_of(*got)};
      });
}

std::optional<Breach> check(const Evidence& e) {
  if (auto b = compare(e, e.forecast.live, e.checkpointed, "checkpointed run")) return b;
  return compare(e, e.forecast.plain_live, e.plain, "plain run");
}

}  // namespace

extern const Law live_bytes_law;
const Law live_bytes_law{
    kName,
    "At every event of a run, after each layer, each node's backward, each gradient, each forward, "
    "backward and step, exactly those bytes are live that the forecast counts.",
    check, Needs::events};

}  // namespace rematch
