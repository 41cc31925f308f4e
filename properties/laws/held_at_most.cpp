#include "properties/laws/allowance.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kHeldAtMost = "held-at-most";

const LiveReading* reading_at(const Record& record, Event event, int step, int microbatch) {
  for (const LiveReading& r : record.held) {
    if (r.event == event && r.step == step && r.microbatch == microbatch) return &r;
  }
  return nullptr;
}

/// At one moment, when `graphs` forwards wait for their backward. nullopt as `per_graph`: how much
/// these may hold is not known.
std::optional<Violation> compare_held(const Evidence& e, Event event, int step, int microbatch,
                                      int graphs, std::optional<std::int64_t> per_graph,
                                      const std::string& place) {
  const LiveReading* const plain = reading_at(e.plain, event, step, microbatch);
  const LiveReading* const got = reading_at(e.checkpointed, event, step, microbatch);
  if (plain == nullptr || got == nullptr) {
    return Violation{kHeldAtMost, place + (plain == nullptr ? ", plain run" : ", checkpointed run"),
                     "a number of bytes held", std::string(kNotRecorded)};
  }
  if (graphs > 0 && !per_graph) return std::nullopt;
  const std::int64_t most = plain->live + graphs * per_graph.value_or(0);
  if (got->live <= most) return std::nullopt;
  const std::int64_t undropped = plain->live + graphs * Allowance(e).undropped();
  return Violation{.law = kHeldAtMost,
                   .place = place,
                   .expected = "at most " + std::to_string(most) + " bytes held",
                   .got = std::to_string(got->live),
                   .beyond_undropped = got->live - undropped};
}

/// Bytes that one graph may hold beyond that of the plain run; negative where less is promised.
/// nullopt: nobody knows how much a policy may keep.
std::optional<std::int64_t> beyond_per_graph(const Evidence& e) {
  const Allowance allowance(e);
  const bool shown = shows_saved(e) && !may_keep_states(e);
  // Casts that a policy keeps are not among what the plain run shows.
  const bool casts = e.c.protocol.autocast != AutocastSpan::off;
  if (allowance.keeps() && (casts || !shown)) return std::nullopt;
  return shown ? allowance.saved(true) - allowance.saved_plain() : allowance.inputs();
}

std::optional<Violation> check_held_at_most(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  const std::optional<std::int64_t> per_graph = beyond_per_graph(e);
  const auto forward = [&](int step, int microbatch) -> std::optional<Violation> {
    const std::string place = place_of(step, microbatch);
    if (auto v =
            compare_held(e, Event::forward, step, microbatch, graphs_after_forward(p, microbatch),
                         per_graph, place + ", after the forward"))
      return v;
    return compare_held(e, Event::backward, step, microbatch, graphs_after_backward(p, microbatch),
                        per_graph, place + ", after the backward");
  };
  if (auto v = for_each_forward(p, forward)) return v;
  for (int step = 0; step < p.steps; ++step) {
    if (auto v = compare_held(e, Event::step, step, 0, 0, per_graph,
                              "step " + std::to_string(step) + ", after the step"))
      return v;
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
    .topic = Topic::memory,
    .check = check_held_at_most,
    .reads = {Observable::held_bytes},
    .applies = applies_held_at_most};

}  // namespace rematch
