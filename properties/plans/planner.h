#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/case.h"
#include "properties/plans/chain.h"
#include "properties/plans/optimum.h"

namespace rematch {

/// Layers [begin, end) that only run together: an in-place layer and the one whose output it
/// overwrites, and else one layer. Planners cut between stages.
struct Stage {
  int begin = 0;
  int end = 0;
  /// Bytes of its output.
  std::int64_t output = 0;
  /// Bytes that stay from its forward to its backward, its output included, as in the papers,
  /// which count an operand as the output of the stage before.
  std::int64_t saved = 0;
  /// Live while it runs, beside its input and its output.
  std::int64_t workspace = 0;
  /// Bytes that its backward adds, gradients included.
  std::int64_t backward = 0;
  int layers() const { return end - begin; }
};

/// Facts that a planner is told: a chain, and the bytes that may be live at any moment.
struct PlannerTask {
  const Case* model = nullptr;
  const Chain* chain = nullptr;
  const Frontier* frontier = nullptr;
  std::vector<Stage> stages;
  /// Live whatever the plan is: the model, its gradients and the optimizer's state.
  std::int64_t resident = 0;
  /// Beside `resident`, while the loss and its gradient are made.
  std::int64_t loss = 0;
  std::int64_t budget = 0;
};

/// All must outlive the task.
PlannerTask task_of(const Case& model, const Chain& chain, const Frontier& frontier,
                    std::int64_t budget);

/// A plan with what its planner promises, or why there is none.
struct PlannerAnswer {
  PlanSpec plan;
  std::string refusal;
  static PlannerAnswer refused(std::string why) { return {{}, std::move(why)}; }
};

/// A planner that comes with the program.
struct Planner {
  std::string_view name;
  /// Whose plan it is, and what it promises.
  std::string_view statement;
  PlannerAnswer (*plan)(const PlannerTask& task);
};
std::span<const Planner> planners();
/// nullptr when there is none.
const Planner* find_planner(std::string_view name);

/// Stages [begin, end) as a segment of the case.
SegmentSpec segment_of(const PlannerTask& task, int begin, int end,
                       std::vector<SegmentSpec> nested = {});

}  // namespace rematch
