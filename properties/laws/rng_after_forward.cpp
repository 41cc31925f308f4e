#include <utility>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "rng-after-forward";

std::optional<Breach> check(const Evidence& e) {
  if (auto breach = compare_streams(e, Moment::after_forward, kName)) return breach;
  if (!e.forecast.values_comparable) return std::nullopt;
  // Backwards in between leave no trace, so one forward's offset follows from the one before it.
  Finder readings(e.checkpointed.streams);
  const StreamReading* previous = nullptr;
  return for_each_forward(e.c.protocol, [&](int step, int pass) -> std::optional<Breach> {
    const StreamReading* reading = readings.find([&](const StreamReading& r) {
      return r.moment == Moment::after_forward && r.step == step && r.pass == pass && r.stream == 0;
    });
    const StreamReading* before = std::exchange(previous, reading);
    if (before == nullptr || reading == nullptr) return std::nullopt;
    const std::uint64_t expected = before->offset + e.forecast.words_per_forward;
    if (reading->offset == expected) return std::nullopt;
    return Breach{kName, place_of(step, pass) + ", stream 0",
                  "offset " + std::to_string(expected) + " (the forward before it plus " +
                      std::to_string(e.forecast.words_per_forward) + " words)",
                  "offset " + std::to_string(reading->offset)};
  });
}

}  // namespace

extern const Law rng_after_forward_law;
const Law rng_after_forward_law{
    kName,
    "A forward leaves all random streams where the plain run does, and advances the default one "
    "by the words that its layers draw.",
    check};

}  // namespace rematch
