#include <cstdint>
#include <string>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kPlanRecomputations = "plan-recomputations";

std::optional<Violation> check_plan_recomputations(const Evidence& e) {
  const std::int64_t promised = e.c.plan.promise.recomputations;
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
    std::int64_t got = 0;
    for (const ExecutionCount& x : e.checkpointed.executions) {
      if (x.step == step && x.microbatch == microbatch) got += x.count - 1;
    }
    if (got <= promised) return std::nullopt;
    return Violation{kPlanRecomputations, place_of(step, microbatch) + "",
                     "at most " + std::to_string(promised), std::to_string(got)};
  });
}

}  // namespace

extern const Law plan_recomputations_law;
const Law plan_recomputations_law{
    .name = kPlanRecomputations,
    .statement =
        "Where a plan promises a number of recomputations, each forward recomputes at most so many "
        "runs of layers.",
    .harm = "A plan that was chosen for a budget costs more time than promised.",
    .topic = Topic::recomputation,
    .check = check_plan_recomputations,
    .reads = {Observable::executions},
    .applies = [](const Evidence& e) {
      return e.c.plan.promise.recomputations != PromiseSpec::kNone && !e.c.plan.empty();
    }};

}  // namespace rematch
