#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "replay-order";

std::optional<Breach> check(const Evidence& e) {
  // Layers alone: what a run does with bytes, and how many nodes it makes, is not asked here.
  const auto layers_of = [](const std::vector<LiveReading>& all) {
    std::vector<LiveReading> layers;
    layers.reserve(all.size());
    for (const LiveReading& r : all) {
      if (r.event == Event::layer) layers.push_back(r);
    }
    return layers;
  };
  const std::vector<LiveReading> expected = layers_of(e.forecast.live);
  const std::vector<LiveReading> seen = layers_of(e.checkpointed.live);
  return for_each_event(expected, seen, e.c.protocol.steps,
                        [&](const LiveReading* wanted, const LiveReading* got,
                            std::size_t number) -> std::optional<Breach> {
                          if (wanted == nullptr) {
                            return Breach{kName, place_of(e.c, *got, "checkpointed run", number),
                                          "the last layer ran", event_name(e.c, *got)};
                          }
                          if (got == nullptr) {
                            return Breach{kName, place_of(e.c, *wanted, "checkpointed run", number),
                                          "this run of the layer", std::string(kNotRecorded)};
                          }
                          if (got->step == wanted->step && got->pass == wanted->pass &&
                              got->layer == wanted->layer && got->execution == wanted->execution) {
                            return std::nullopt;
                          }
                          return Breach{
                              kName, place_of(e.c, *wanted, "checkpointed run", number),
                              "this run of the layer",
                              place_of(got->step, got->pass) + ", " + event_name(e.c, *got)};
                        });
}

}  // namespace

extern const Law replay_order_law;
const Law replay_order_law{
    kName,
    "Layers run in the order that the forecast gives: in a backward the last segment is replayed "
    "first, the layers of each in the order of the forward, each once.",
    check, Needs::events};

}  // namespace rematch
