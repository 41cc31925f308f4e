#include <algorithm>
#include <array>
#include <cmath>

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

/// The cut of torch.utils.checkpoint.checkpoint_sequential(): equal numbers of layers, the last
/// segment outside. It knows no bytes, and cuts in front of in-place layers as well.
PlannerAnswer plan_sequential(const PlannerTask& task) {
  const int layers = static_cast<int>(task.model->layers.size());
  const int segments =
      std::max(1, static_cast<int>(std::lround(std::sqrt(static_cast<double>(layers)))));
  PlannerAnswer answer;
  answer.plan.sequential = SequentialSpec{segments, true, {}};
  answer.plan.promise.recomputations = std::int64_t{layers / segments} * (segments - 1);
  return answer;
}

constexpr std::array kPlanners{
    Planner{.name = "optimum",
            .statement = "`rematch plan`: the least recomputation within the budget; promises peak "
                         "bytes and recomputations",
            .plan = plan_optimum},
    Planner{.name = "sequential",
            .statement =
                "PyTorch's checkpoint_sequential(), as many segments as the square root of "
                "the depth; promises recomputations, whatever the budget",
            .plan = plan_sequential}};

}  // namespace

std::span<const Planner> planners() { return kPlanners; }

const Planner* find_planner(std::string_view name) {
  for (const Planner& planner : planners()) {
    if (planner.name == name) return &planner;
  }
  return nullptr;
}

PlannerTask task_of(const Case& model, const Chain& chain, const Frontier& frontier,
                    std::int64_t budget) {
  PlannerTask task{&model, &chain, &frontier, {}, chain.forward, 0, budget};
  const int layers = static_cast<int>(chain.layers.size());
  for (int i = 0; i < layers; ++i) {
    const ChainLayer& l = chain.layers[static_cast<std::size_t>(i)];
    const std::int64_t input = chain.value[static_cast<std::size_t>(i)];
    const std::int64_t output = chain.value[static_cast<std::size_t>(i) + 1];
    if (task.stages.empty() || l.may_begin) {
      task.stages.push_back({i, i, 0, 0, 0, 0});
    } else if (!l.alias) {
      // The value between the two stays as well, if one of them reads it later.
      const ChainLayer& before = chain.layers[static_cast<std::size_t>(i) - 1];
      if (before.saves_output || l.saves_operand) task.stages.back().saved += input;
    }
    Stage& stage = task.stages.back();
    stage.end = i + 1;
    stage.output = output;
    stage.saved += l.own;
    stage.workspace = std::max(stage.workspace, l.running - (l.alias ? 0 : output));
    stage.backward = std::max(stage.backward, l.backward);
    if (l.has_node) task.resident = std::max(task.resident, l.before - output);
  }
  for (Stage& stage : task.stages) stage.saved += stage.output;
  task.loss = std::max(
      {std::int64_t{0}, chain.with_output - task.resident, chain.without_output - task.resident});
  return task;
}

SegmentSpec segment_of(const PlannerTask& task, int begin, int end,
                       std::vector<SegmentSpec> nested) {
  return {task.stages[static_cast<std::size_t>(begin)].begin,
          task.stages[static_cast<std::size_t>(end) - 1].end,
          {},
          std::move(nested)};
}

}  // namespace rematch
