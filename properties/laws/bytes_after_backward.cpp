#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "bytes-after-backward";

std::optional<Breach> compare(const Evidence& e, const Record& record, std::int64_t per_forward,
                              const char* run) {
  Finder readings(record.bytes);
  return for_each_forward(e.c.protocol, [&](int step, int pass) -> std::optional<Breach> {
    const ByteReading* reading = readings.find([&](const ByteReading& r) {
      return r.moment == Moment::after_backward && r.step == step && r.pass == pass && !r.retained;
    });
    const auto breach = [&](const char* tag, std::int64_t expected, std::string got) {
      return Breach{kName, place_of(step, pass) + ", " + tag + " bytes of the " + run,
                    std::to_string(expected), std::move(got)};
    };
    // What a replay brought back belongs to one backward, whether the graph is kept or not.
    const std::int64_t kept = per_forward * graphs_after_forward(e.c.protocol, pass);
    for (const ByteReading& r : record.bytes) {
      if (r.retained && r.step == step && r.pass == pass && r.saved != kept) {
        return breach("saved (graph retained)", kept, std::to_string(r.saved));
      }
    }
    const int graphs = graphs_after_backward(e.c.protocol, pass);
    const std::int64_t saved = per_forward * graphs;
    if (reading == nullptr) return breach("saved", saved, std::string(kNotRecorded));
    if (reading->saved != saved) return breach("saved", saved, std::to_string(reading->saved));
    // Graphs that wait hold values of their own; without any, nothing may be left.
    if (graphs == 0 && reading->temporaries != 0) {
      return breach("temporary", 0, std::to_string(reading->temporaries));
    }
    return std::nullopt;
  });
}

std::optional<Breach> check(const Evidence& e) {
  if (auto b = compare(e, e.checkpointed, e.forecast.saved_bytes, "checkpointed run")) return b;
  return compare(e, e.plain, e.forecast.plain_saved_bytes, "plain run");
}

}  // namespace

extern const Law bytes_after_backward_law;
const Law bytes_after_backward_law{
    kName,
    "The last backward of a forward leaves no saved or temporary bytes behind, save those of "
    "forwards that still wait; a backward that retains its graph leaves what the forward left.",
    check};

}  // namespace rematch
