#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "properties/court/court.h"

namespace rematch {

/// The task as a line of JSON, as properties/plans/README.md says, and the plan in an answer.
std::string planner_request(const PlannerTask& task);
/// Segments are `{"begin": 0, "end": 2, "nested": [...], "variant": "reentrant"}`, or intervals
/// `[0, 2]`, of which the shorter lie in the longer. They count stages. Throws
/// std::invalid_argument that says what was expected and what came.
PlannerAnswer planner_answer(const PlannerTask& task, std::string_view text);

/// A command of the shell that reads a line of JSON for each chain from stdin, and writes one to
/// stdout. Each thread starts its own. A planner that takes more than `seconds` for a chain has
/// failed.
CourtPlanner external_planner(const std::string& command, double seconds,
                              const std::atomic<bool>* stop = nullptr);
/// A file with one answer, for every chain.
CourtPlanner plan_file(const std::string& name, const std::string& text);

}  // namespace rematch
