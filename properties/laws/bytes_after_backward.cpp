#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kBytesAfterBackward = "bytes-after-backward";

Violation violation(int step, int microbatch, const char* tag, const char* run,
                    std::int64_t expected, std::string got) {
  return {kBytesAfterBackward, place_of(step, microbatch) + ", " + tag + " bytes of the " + run,
          std::to_string(expected), std::move(got)};
}

/// Only whether anything is left when no graph waits is judged where the forecast's bytes mean
/// nothing.
std::optional<Violation> compare(const Evidence& e, const Record& record, std::int64_t per_forward,
                                 std::int64_t offloaded_per_forward, const char* run) {
  // Recomputed tensors belong to one backward, whether the graph is kept or not.
  std::int64_t retained = 0;
  for (const ByteReading& r : record.bytes) {
    if (!r.retained) continue;
    ++retained;
    if (!e.forecast.bytes_known) continue;
    const int graphs = graphs_after_forward(e.c.protocol, r.microbatch);
    const std::int64_t kept = per_forward * graphs;
    const std::int64_t offloaded = offloaded_per_forward * graphs;
    if (r.saved != kept) {
      return violation(r.step, r.microbatch, "saved (graph retained)", run, kept,
                       std::to_string(r.saved));
    }
    if (r.offloaded != offloaded) {
      return violation(r.step, r.microbatch, "offloaded (graph retained)", run, offloaded,
                       std::to_string(r.offloaded));
    }
  }
  const ProtocolSpec& p = e.c.protocol;
  const auto roots = static_cast<std::int64_t>(roots_of(e.c, e.forecast.output_flags).size());
  const std::int64_t expected =
      std::int64_t{p.steps} * p.microbatches * (roots * backward_calls(e.c, e.geometry) - 1);
  if (roots > 0 && retained != expected) {
    return Violation{kBytesAfterBackward, std::string("readings with the graph retained, ") + run,
                     std::to_string(expected), std::to_string(retained)};
  }
  Finder readings(record.bytes);
  return for_each_forward(p, [&](int step, int microbatch) -> std::optional<Violation> {
    const ByteReading* reading = readings.find([&](const ByteReading& r) {
      return r.moment == Moment::after_backward && r.step == step && r.microbatch == microbatch &&
             !r.retained;
    });
    const int graphs = graphs_after_backward(p, microbatch);
    const std::int64_t saved = per_forward * graphs;
    if (reading != nullptr && graphs > 0 && !e.forecast.bytes_known) return std::nullopt;
    if (reading == nullptr || reading->saved != saved) {
      return violation(
          step, microbatch, "saved", run, saved,
          reading != nullptr ? std::to_string(reading->saved) : std::string(kNotRecorded));
    }
    const std::int64_t offloaded = offloaded_per_forward * graphs;
    if (reading->offloaded != offloaded) {
      return violation(step, microbatch, "offloaded", run, offloaded,
                       std::to_string(reading->offloaded));
    }
    // Graphs that wait hold values of their own; without any, nothing may be left.
    if (graphs == 0 && reading->temporaries != 0) {
      return violation(step, microbatch, "temporary", run, 0, std::to_string(reading->temporaries));
    }
    return std::nullopt;
  });
}

std::optional<Violation> check_bytes_after_backward(const Evidence& e) {
  const Forecast& f = e.forecast;
  if (auto b = compare(e, e.checkpointed, saved_per_forward(e, f.saved_bytes), f.offloaded_bytes,
                       "checkpointed run")) {
    return b;
  }
  return compare(e, e.plain, saved_per_forward(e, f.plain_saved_bytes), 0, "plain run");
}

}  // namespace

extern const Law bytes_after_backward_law;
const Law bytes_after_backward_law{
    .name = kBytesAfterBackward,
    .statement =
        "The last backward of a forward leaves no saved, offloaded or temporary bytes, except "
        "those of forwards that still wait for their backward. A backward that retains its graph "
        "leaves what the forward left. Where a forward has several backwards, the last one "
        "releases its own graph and everything that only this graph still held.",
    .harm = "Memory leaks from step to step until the run is out of memory.",
    .topic = Topic::memory,
    .check = check_bytes_after_backward,
    .reads = {Observable::saved_bytes, Observable::released_bytes},
    .applies = [](const Evidence& e) { return knows_saved_bytes(e) || !e.forecast.bytes_known; }};

}  // namespace rematch
