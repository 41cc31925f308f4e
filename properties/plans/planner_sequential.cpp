#include "properties/plans/planner.h"

namespace rematch {
namespace {

/// The cut of torch.utils.checkpoint.checkpoint_sequential(): equal numbers of layers, the last
/// segment outside. It knows no bytes, and cuts in front of in-place layers as well.
PlannerAnswer plan_sequential(const PlannerTask& task) {
  const int layers = static_cast<int>(task.model->layers.size());
  const int segments = segments_of_uniform(layers);
  PlannerAnswer answer;
  answer.plan.sequential = SequentialSpec{segments, true, {}};
  answer.plan.promise.recomputations = std::int64_t{layers / segments} * (segments - 1);
  return answer;
}

}  // namespace

extern const Planner sequential_planner;
const Planner sequential_planner{
    .name = "sequential",
    .statement =
        "PyTorch's checkpoint_sequential(), as many segments as the square root of the "
        "depth; promises recomputations, whatever the budget",
    .plan = plan_sequential};

}  // namespace rematch
