#include <algorithm>
#include <cstdint>
#include <string>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kPlanPromise = "plan-promise";

std::optional<Violation> check_plan_promise(const Evidence& e) {
  const std::int64_t promised = e.c.plan.promise.peak_bytes;
  const auto event = std::find_if(e.checkpointed.live.begin(), e.checkpointed.live.end(),
                                  [&](const LiveReading& r) { return r.peak > promised; });
  if (event == e.checkpointed.live.end()) return std::nullopt;
  std::int64_t peak = 0;
  for (const LiveReading& r : e.checkpointed.live) peak = std::max(peak, r.peak);
  return Violation{kPlanPromise,
                   "peak, first exceeded before " + place_of(event->step, event->microbatch) +
                       ", " + event_name(e.c, *event),
                   "at most " + std::to_string(promised) + " bytes",
                   std::to_string(peak) + " bytes"};
}

/// A plain run breaks the promise of a plan that it does not follow.
bool applies_plan_promise(const Evidence& e) {
  return e.c.plan.promise.peak_bytes != PromiseSpec::kNone && !e.c.plan.empty();
}

}  // namespace

extern const Law plan_promise_law;
const Law plan_promise_law{
    .name = kPlanPromise,
    .statement =
        "Where a plan promises a peak, its run has at most so many live bytes at any moment.",
    .harm = "A plan that was chosen for a budget runs out of memory.",
    .topic = Topic::memory,
    .check = check_plan_promise,
    .reads = {Observable::live_bytes},
    .applies = applies_plan_promise};

}  // namespace rematch
