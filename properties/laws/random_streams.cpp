// The laws of the random streams, at each moment at which they are read.
#include <utility>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kRngAfterForward = "rng-after-forward";

std::optional<Violation> check_stream(const Evidence& e, int stream) {
  const std::uint64_t draws = e.forecast.draws_per_forward[static_cast<std::size_t>(stream)];
  const std::uint64_t start = e.forecast.words_of_trial[static_cast<std::size_t>(stream)];
  Finder readings(e.checkpointed.streams);
  const StreamReading* previous = nullptr;
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
    const StreamReading* reading = readings.find([&](const StreamReading& r) {
      return r.moment == Moment::after_forward && r.step == step && r.microbatch == microbatch &&
             r.stream == stream;
    });
    const StreamReading* before = std::exchange(previous, reading);
    if (reading == nullptr) {
      return Violation{kRngAfterForward,
                       place_of(step, microbatch) + ", stream " + std::to_string(stream),
                       "a reading", std::string(kNotRecorded)};
    }
    const std::uint64_t expected = (before == nullptr ? start : before->offset) + draws;
    if (reading->offset == expected) return std::nullopt;
    return Violation{kRngAfterForward,
                     place_of(step, microbatch) + ", stream " + std::to_string(stream),
                     "offset " + std::to_string(expected) + " (the forward before it plus " +
                         std::to_string(draws) + " draws)",
                     "offset " + std::to_string(reading->offset)};
  });
}

std::optional<Violation> check_rng_after_forward(const Evidence& e) {
  if (auto violation = compare_streams(e, Moment::after_forward, kRngAfterForward))
    return violation;
  if (!e.forecast.values_comparable || !e.observed.contains(Observable::rng_offsets)) {
    return std::nullopt;
  }
  // Backwards in between leave no trace, so one forward's offset follows from the one before it.
  for (std::size_t stream = 0; stream < e.forecast.draws_per_forward.size(); ++stream) {
    if (auto violation = check_stream(e, static_cast<int>(stream))) return violation;
  }
  return std::nullopt;
}

constexpr std::string_view kRngAfterBackward = "rng-after-backward";

std::optional<Violation> check_rng_after_backward(const Evidence& e) {
  if (auto violation = compare_streams(e, Moment::after_backward, kRngAfterBackward))
    return violation;
  if (!e.forecast.values_comparable) return std::nullopt;
  const ProtocolSpec& p = e.c.protocol;
  const int last_microbatch = p.microbatches - 1;
  Finder forwards(e.checkpointed.streams);
  for (const StreamReading& r : e.checkpointed.streams) {
    if (r.moment != Moment::after_backward) continue;
    const int microbatch = p.forwards_first ? last_microbatch : r.microbatch;
    const StreamReading* forward = forwards.find([&](const StreamReading& s) {
      return s.moment == Moment::after_forward && s.step == r.step && s.microbatch == microbatch &&
             s.stream == r.stream;
    });
    if (forward != nullptr && forward->seed == r.seed && forward->offset == r.offset) continue;
    return Violation{
        kRngAfterBackward, place_of(r.step, r.microbatch) + ", stream " + std::to_string(r.stream),
        forward == nullptr ? std::string(kNotRecorded)
                           : "as after the forward: offset " + std::to_string(forward->offset),
        "offset " + std::to_string(r.offset)};
  }
  return std::nullopt;
}

constexpr std::string_view kRngAfterStep = "rng-after-step";

std::optional<Violation> check_rng_after_step(const Evidence& e) {
  return compare_streams(e, Moment::after_step, kRngAfterStep);
}

}  // namespace

extern const Law rng_after_forward_law;
const Law rng_after_forward_law{
    .name = kRngAfterForward,
    .statement =
        "A forward leaves all random streams as the plain run does, and advances each by what its "
        "layers draw from it.",
    .harm = "All later random numbers differ, so the run cannot be reproduced or compared.",
    .topic = Topic::randomness,
    .check = check_rng_after_forward,
    .reads = {Observable::rng_state}};

extern const Law rng_after_backward_law;
const Law rng_after_backward_law{
    .name = kRngAfterBackward,
    .statement =
        "A backward leaves all random streams as it found them and as the plain run does, whatever "
        "it recomputes.",
    .harm = "All later random numbers differ, so the run cannot be reproduced or compared.",
    .topic = Topic::randomness,
    .check = check_rng_after_backward,
    .reads = {Observable::rng_state}};

extern const Law rng_after_step_law;
const Law rng_after_step_law{
    .name = kRngAfterStep,
    .statement = "After every step, all random streams are the same as in the plain run.",
    .harm = "All later random numbers differ, so the run cannot be reproduced or compared.",
    .topic = Topic::randomness,
    .check = check_rng_after_step,
    .reads = {Observable::rng_state}};

}  // namespace rematch
