#include <algorithm>

#include "properties/plans/planner.h"
#include "properties/plans/revolve.h"

namespace rematch {
namespace {

/// A slot has the bytes of the largest value. Three more are for what the algorithm does not count:
/// the value that a backward reads, its gradient, and the gradient that it makes.
int slots_of(const PlannerTask& task) {
  std::int64_t largest = 1;
  for (const Stage& s : task.stages) largest = std::max(largest, s.output);
  const std::int64_t slots = (task.budget - task.resident) / largest - 3;
  return static_cast<int>(std::clamp(slots, std::int64_t{0}, std::ssize(task.stages)));
}

PlannerAnswer plan_with(const PlannerTask& task, Variant variant) {
  const int stages = static_cast<int>(task.stages.size());
  const int slots = slots_of(task);
  const Revolve revolve(stages, slots);
  PlannerAnswer answer;
  answer.plan.segments = revolve.plan<SegmentSpec>(
      0, stages, slots, [&](int begin, int end, std::vector<SegmentSpec> nested) {
        SegmentSpec s = segment_of(task, begin, end, std::move(nested));
        s.choice.variant = variant;
        return s;
      });
  answer.plan.promise.recomputations = layers_in(answer.plan.segments);
  return answer;
}

PlannerAnswer plan_revolve(const PlannerTask& task) {
  return plan_with(task, Variant::non_reentrant);
}

PlannerAnswer plan_reentrant(const PlannerTask& task) {
  if (!task.model->protocol.input_requires_grad) {
    return PlannerAnswer::refused("reentrant segments need an input that requires grad");
  }
  return plan_with(task, Variant::reentrant);
}

}  // namespace

extern const Planner revolve_planner;
const Planner revolve_planner{
    .name = "revolve",
    .statement =
        "Griewank and Walther (2000), as many slots of the largest value as the budget "
        "has; promises recomputations",
    .plan = plan_revolve};

extern const Planner revolve_reentrant_planner;
const Planner revolve_reentrant_planner{
    .name = "revolve-reentrant",
    .statement = "The plan of revolve with reentrant segments, and the same promise",
    .plan = plan_reentrant};

}  // namespace rematch
