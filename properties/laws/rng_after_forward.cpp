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

}  // namespace rematch
