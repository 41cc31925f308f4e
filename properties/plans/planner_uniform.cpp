#include "properties/plans/planner.h"

namespace rematch {
namespace {

/// Segments of equal length, as many as the square root of the depth, all recomputed. It knows no
/// budget.
PlannerAnswer plan_uniform(const PlannerTask& task) {
  const int stages = static_cast<int>(task.stages.size());
  const int segments = segments_of_uniform(stages);
  std::vector<int> ends;
  for (int i = 1; i <= segments; ++i) ends.push_back(i * stages / segments);
  return flat_plan(task, ends);
}

}  // namespace

extern const Planner uniform_planner;
const Planner uniform_planner{
    .name = "uniform",
    .statement =
        "Chen et al. (2016), equal segments, as many as the square root of the depth; "
        "promises the sum of their inputs and of the largest segment, whatever the budget",
    .plan = plan_uniform};

}  // namespace rematch
