#include <algorithm>
#include <cstdint>
#include <string>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kPlanPromise = "plan-promise";

std::optional<Violation> check_peak(const Evidence& e) {
  const std::int64_t promised = e.c.plan.promise.peak_bytes;
  const auto event = std::find_if(e.checkpointed.live.begin(), e.checkpointed.live.end(),
                                  [&](const LiveReading& r) { return r.peak > promised; });
  if (promised == PromiseSpec::kNone || event == e.checkpointed.live.end()) return std::nullopt;
  std::int64_t peak = 0;
  for (const LiveReading& r : e.checkpointed.live) peak = std::max(peak, r.peak);
  return Violation{kPlanPromise,
                   "peak, first exceeded before " + place_of(event->step, event->microbatch) +
                       ", " + event_name(e.c, *event),
                   "at most " + std::to_string(promised) + " bytes",
                   std::to_string(peak) + " bytes"};
}

std::optional<Violation> check_recomputations(const Evidence& e) {
  const std::int64_t promised = e.c.plan.promise.recomputations;
  if (promised == PromiseSpec::kNone) return std::nullopt;
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
    std::int64_t got = 0;
    for (const ExecutionCount& x : e.checkpointed.executions) {
      if (x.step == step && x.microbatch == microbatch) got += x.count - 1;
    }
    if (got <= promised) return std::nullopt;
    return Violation{kPlanPromise, place_of(step, microbatch) + ", recomputations",
                     "at most " + std::to_string(promised), std::to_string(got)};
  });
}

std::optional<Violation> check_plan_promise(const Evidence& e) {
  if (auto violation = check_recomputations(e)) return violation;
  return check_peak(e);
}

/// A plain run breaks the promise of a plan that it does not follow.
bool applies_plan_promise(const Evidence& e) {
  return e.c.plan.promise != PromiseSpec{} && !e.c.plan.empty();
}

}  // namespace

extern const Law plan_promise_law;
const Law plan_promise_law{
    .name = kPlanPromise,
    .statement =
        "Where a plan comes with a promise, its run has at most so many live bytes at any moment, "
        "and each forward recomputes at most so many runs of layers.",
    .harm = "A plan that was chosen for a budget runs out of memory, or costs more time.",
    .promise = Promise::memory,
    .check = check_plan_promise,
    .reads = {Observable::live_bytes, Observable::executions},
    .applies = applies_plan_promise};

}  // namespace rematch
