#include "properties/laws/support.h"

namespace rematch {
namespace {

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

}  // namespace

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

}  // namespace rematch
