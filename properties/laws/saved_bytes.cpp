#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kSavedBytes = "saved-bytes";

std::optional<Violation> compare_saved(const Evidence& e, const Record& record,
                                       std::int64_t per_forward, std::int64_t offloaded_per_forward,
                                       const char* run) {
  Finder readings(record.bytes);
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
    const ByteReading* reading = readings.find([&](const ByteReading& r) {
      return r.moment == Moment::after_forward && r.step == step && r.microbatch == microbatch;
    });
    const int graphs = graphs_after_forward(e.c.protocol, microbatch);
    const std::int64_t expected = per_forward * graphs;
    if (reading != nullptr && reading->saved == expected) {
      const std::int64_t offloaded = offloaded_per_forward * graphs;
      if (reading->offloaded == offloaded) return std::nullopt;
      return Violation{
          kSavedBytes,
          place_of(step, microbatch) + ", in host memory after the forward of the " + run,
          std::to_string(offloaded), std::to_string(reading->offloaded)};
    }
    return Violation{
        kSavedBytes, place_of(step, microbatch) + ", after the forward of the " + run,
        std::to_string(expected),
        reading != nullptr ? std::to_string(reading->saved) : std::string(kNotRecorded)};
  });
}

std::optional<Violation> check_saved_bytes(const Evidence& e) {
  const Forecast& f = e.forecast;
  if (auto b = compare_saved(e, e.checkpointed, saved_per_forward(e, f.saved_bytes),
                             f.offloaded_bytes, "checkpointed run")) {
    return b;
  }
  return compare_saved(e, e.plain, saved_per_forward(e, f.plain_saved_bytes), 0, "plain run");
}

}  // namespace

extern const Law saved_bytes_law;
const Law saved_bytes_law{
    .name = kSavedBytes,
    .statement =
        "After a forward, the saved bytes and the bytes in host memory are exactly those that the "
        "forecast counts for the graphs that wait for their backward.",
    .harm = "Checkpointing saves less memory than promised.",
    .topic = Topic::memory,
    .check = check_saved_bytes,
    .reads = {Observable::saved_bytes, Observable::exact_bytes},
    .applies = knows_saved_bytes};

}  // namespace rematch
