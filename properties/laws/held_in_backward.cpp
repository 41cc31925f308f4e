#include <algorithm>
#include <utility>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kHeldInBackward = "held-in-backward";

std::optional<Violation> check_held_in_backward(const Evidence& e) {
  const std::vector<SegmentSpec> segments = segments_of(e.c);
  // Bytes held at the last moment that bounds the next recomputation.
  std::int64_t before = 0;
  std::pair forward{-1, -1};
  bool recorded = false;
  for (const LiveReading& r : e.checkpointed.held) {
    if (r.event != Event::layer) {
      before = r.live;
      if (r.event == Event::forward) forward = {r.step, r.microbatch};
      continue;
    }
    recorded = true;
    // A layer with a backward of its own is recomputed within the forward.
    if (std::pair(r.step, r.microbatch) > forward) continue;
    // Nested segments that begin with the one around them are recomputed while more is held.
    const bool begins = std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
      return s.begin == r.layer && (s.nested.empty() ? r.execution > 0 : r.execution == 1);
    });
    if (!begins) continue;
    if (r.entered > before) {
      return Violation{
          kHeldInBackward,
          "when a recomputation begins, before " + place_of(e.c, r.step, r.microbatch, r.layer) +
              ", execution " + std::to_string(r.execution),
          "at most " + std::to_string(before) + " bytes held", std::to_string(r.entered)};
    }
    before = r.entered;
  }
  if (recorded) return std::nullopt;
  return Violation{kHeldInBackward, "bytes held when layers begin, checkpointed run", "recorded",
                   std::string(kNotRecorded)};
}

// Several backwards of one forward begin anew. Casts stay in their cache, copies on the host are
// held, too.
bool applies_held_in_backward(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  return p.backwards == 1 && !p.partial && !p.auxiliary_losses && p.autocast == AutocastSpan::off &&
         !e.c.plan.offload && !hides_inputs(e.c.plan.segments) && !segments_of(e.c).empty();
}

}  // namespace

extern const Law held_in_backward_law;
const Law held_in_backward_law{
    .name = kHeldInBackward,
    .statement =
        "When a recomputation begins, no more of what layers made is held than when the one before "
        "began, or when the forward ended.",
    .harm = "Several segments are alive at once, so the peak of memory is higher than planned.",
    .promise = Promise::memory,
    .check = check_held_in_backward,
    .reads = {Observable::held_bytes},
    .applies = applies_held_in_backward};

}  // namespace rematch
