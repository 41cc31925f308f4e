#include "properties/laws/allowance.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kHeldAtMost = "held-at-most";

std::string_view moment_of(Event event) {
  if (event == Event::forward) return "after the forward";
  return event == Event::backward ? "after the backward" : "after the step";
}

const LiveReading* reading_at(const Record& record, const LiveReading& moment) {
  for (const LiveReading& r : record.held) {
    if (r.event == moment.event && r.step == moment.step && r.microbatch == moment.microbatch)
      return &r;
  }
  return nullptr;
}

/// Bytes that one graph may hold beyond that of the plain run; negative where less is promised. nullopt:
/// nobody knows how much a policy may keep.
std::optional<std::int64_t> beyond_per_graph(const Evidence& e) {
  const Allowance allowance(e);
  const bool shown = e.observed.contains(Observable::saved_tensors) &&
                     e.observed.contains(Observable::saved_bytes) && !may_keep_states(e) &&
                     !saves_may_vary(e);
  // Casts that a policy keeps are not among what the plain run shows.
  const bool casts = e.c.protocol.autocast != AutocastSpan::off;
  if (allowance.keeps() && (casts || !shown)) return std::nullopt;
  return shown ? allowance.saved() - allowance.saved_plain() : allowance.inputs();
}

std::optional<Violation> check_held_at_most(const Evidence& e) {
  const std::optional<std::int64_t> per_graph = beyond_per_graph(e);
  for (const LiveReading& plain : e.plain.held) {
    if (plain.event == Event::layer) continue;
    const int graphs =
        plain.event == Event::forward    ? graphs_after_forward(e.c.protocol, plain.microbatch)
        : plain.event == Event::backward ? graphs_after_backward(e.c.protocol, plain.microbatch)
                                         : 0;
    if (graphs > 0 && !per_graph) continue;
    const std::int64_t most = plain.live + graphs * per_graph.value_or(0);
    const LiveReading* const got = reading_at(e.checkpointed, plain);
    if (got != nullptr && got->live <= most) continue;
    std::string place = plain.event == Event::step ? "step " + std::to_string(plain.step)
                                                   : place_of(plain.step, plain.microbatch);
    place += ", ";
    place += moment_of(plain.event);
    return Violation{kHeldAtMost, std::move(place),
                     "at most " + std::to_string(most) + " bytes held",
                     got != nullptr ? std::to_string(got->live) : std::string(kNotRecorded)};
  }
  return std::nullopt;
}

// Copies on the host are held, too; and so is what segments within others are handed in a
// structure, as long as the structure.
bool applies_held_at_most(const Evidence& e) {
  return !e.c.plan.offload && !hides_inputs(e.c.plan.segments);
}

}  // namespace

extern const Law held_at_most_law;
const Law held_at_most_law{
    .name = kHeldAtMost,
    .statement =
        "After a forward, no more of what layers made is held than in the plain run, minus what "
        "layers in segments save there, plus the segments' inputs and what a policy may keep. "
        "After a backward and after a step, no more is held than in the plain run.",
    .harm = "Checkpointing saves less memory than promised, or memory leaks from step to step.",
    .promise = Promise::memory,
    .check = check_held_at_most,
    .reads = {Observable::held_bytes},
    .applies = applies_held_at_most};

}  // namespace rematch
