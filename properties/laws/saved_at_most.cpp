#include <algorithm>

#include "properties/laws/allowance.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kSavedAtMost = "saved-at-most";

std::optional<Violation> check_saved_at_most(const Evidence& e) {
  const Allowance allowance(e);
  const std::int64_t per_forward = allowance.saved();
  int readings = 0;
  for (const ByteReading& r : e.checkpointed.bytes) {
    if (r.moment != Moment::after_forward) continue;
    ++readings;
    const int graphs = graphs_after_forward(e.c.protocol, r.microbatch);
    const std::int64_t most = per_forward * graphs;
    // The source of the latest copy to the host may be there still.
    const std::int64_t got = std::max(r.saved, r.offloaded);
    if (got <= most) continue;
    const std::int64_t undropped = graphs * (allowance.saved_plain() + allowance.undropped());
    return Violation{.law = kSavedAtMost,
                     .place = place_of(r.step, r.microbatch) + ", after the forward",
                     .expected = "at most " + std::to_string(most) + " bytes saved",
                     .got = std::to_string(got),
                     .beyond_undropped = got - undropped};
  }
  const int forwards = e.c.protocol.steps * e.c.protocol.microbatches;
  if (readings >= forwards) return std::nullopt;
  return Violation{kSavedAtMost, "readings after forwards, checkpointed run",
                   std::to_string(forwards), std::to_string(readings)};
}

// Casts that a policy keeps are not among what the plain run shows.
bool applies_saved_at_most(const Evidence& e) {
  if (may_keep_states(e) || saves_may_vary(e)) return false;
  return e.c.protocol.autocast == AutocastSpan::off || !Allowance(e).keeps();
}

}  // namespace

extern const Law saved_at_most_law;
const Law saved_at_most_law{
    .name = kSavedAtMost,
    .statement =
        "After a forward, no more bytes are saved than in the plain run, minus what the layers in "
        "segments save there, plus the segments' inputs and what a policy may keep.",
    .harm = "Checkpointing saves less memory than promised.",
    .topic = Topic::memory,
    .check = check_saved_at_most,
    .reads = {Observable::saved_bytes, Observable::saved_tensors},
    .applies = applies_saved_at_most};

}  // namespace rematch
