#include "properties/plans/planner.h"

namespace rematch {
namespace {

/// Algorithm 3 of Chen et al. (2016) for a chain: a segment ends where it has more than `most`.
std::vector<int> walk_greedily(const PlannerTask& task, std::int64_t most) {
  std::vector<int> ends;
  std::int64_t bytes = 0;
  const int stages = static_cast<int>(task.stages.size());
  for (int i = 0; i < stages; ++i) {
    bytes += task.stages[static_cast<std::size_t>(i)].saved;
    if (bytes <= most && i + 1 < stages) continue;
    ends.push_back(i + 1);
    bytes = 0;
  }
  return ends;
}

/// The paper searches for the best bytes of a segment around a guess. All that make a difference
/// are tried here: sums of stages in a row.
PlannerAnswer plan_greedy(const PlannerTask& task) {
  PlannerAnswer best = flat_plan(task, walk_greedily(task, 0));
  for (std::size_t begin = 0; begin < task.stages.size(); ++begin) {
    std::int64_t most = 0;
    for (std::size_t end = begin; end < task.stages.size(); ++end) {
      most += task.stages[end].saved;
      PlannerAnswer answer = flat_plan(task, walk_greedily(task, most));
      if (answer.plan.promise.peak_bytes < best.plan.promise.peak_bytes) best = std::move(answer);
    }
  }
  if (best.plan.promise.peak_bytes <= task.budget) return best;
  return PlannerAnswer::refused("no segments fit");
}

}  // namespace

extern const Planner greedy_planner;
const Planner greedy_planner{
    .name = "greedy",
    .statement =
        "Chen et al. (2016), Algorithm 3, segments by bytes, with the least sum of inputs "
        "and of the largest segment; promises that sum",
    .plan = plan_greedy};

}  // namespace rematch
