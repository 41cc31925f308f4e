#include <algorithm>
#include <array>
#include <cmath>

#include "properties/plans/planner.h"

// In the order of reports. Each is defined in planner_NAME.cpp.
#define REMATCH_EACH_PLANNER(PLANNER) \
  PLANNER(optimum)                    \
  PLANNER(rotor)                      \
  PLANNER(greedy)                     \
  PLANNER(uniform)                    \
  PLANNER(sequential)                 \
  PLANNER(revolve)                    \
  PLANNER(revolve_reentrant)

namespace rematch {

#define REMATCH_DECLARE(name) extern const Planner name##_planner;
REMATCH_EACH_PLANNER(REMATCH_DECLARE)
#undef REMATCH_DECLARE

std::span<const Planner* const> planners() {
#define REMATCH_LIST(name) &name##_planner,
  static constexpr std::array kPlanners{REMATCH_EACH_PLANNER(REMATCH_LIST)};
#undef REMATCH_LIST
  return kPlanners;
}

const Planner* find_planner(std::string_view name) {
  for (const Planner* planner : planners()) {
    if (planner->name == name) return planner;
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

std::int64_t layers_in(const std::vector<SegmentSpec>& segments) {
  std::int64_t layers = 0;
  for (const SegmentSpec& s : segments) layers += s.end - s.begin + layers_in(s.nested);
  return layers;
}

PlannerAnswer flat_plan(const PlannerTask& task, const std::vector<int>& ends) {
  PlannerAnswer answer;
  std::int64_t inputs = 0;
  std::int64_t largest = 0;
  int begin = 0;
  for (const int end : ends) {
    std::int64_t outputs = 0;
    for (int i = begin; i < end; ++i) outputs += task.stages[static_cast<std::size_t>(i)].saved;
    if (begin > 0) inputs += task.stages[static_cast<std::size_t>(begin) - 1].output;
    largest = std::max(largest, outputs);
    answer.plan.segments.push_back(segment_of(task, begin, end));
    begin = end;
  }
  // The papers count feature maps. The rest is not held against them.
  answer.plan.promise = {std::max(task.resident + inputs + largest, task.chain->rest),
                         layers_in(answer.plan.segments)};
  return answer;
}

int segments_of_uniform(int stages) {
  return std::max(1, static_cast<int>(std::lround(std::sqrt(static_cast<double>(stages)))));
}

}  // namespace rematch
