#include "properties/plans/planner.h"

namespace rematch {
namespace {

PlannerAnswer plan_optimum(const PlannerTask& task) {
  for (const BestPlan& best : task.frontier->plans) {
    if (best.promise.peak_bytes > task.budget) continue;
    PlannerAnswer answer;
    answer.plan.segments = best.segments;
    answer.plan.promise = best.promise;
    return answer;
  }
  return PlannerAnswer::refused("no plan fits");
}

}  // namespace

extern const Planner optimum_planner;
const Planner optimum_planner{
    .name = "optimum",
    .statement =
        "`rematch plan`: the least recomputation within the budget; promises peak bytes "
        "and recomputations",
    .plan = plan_optimum};

}  // namespace rematch
