#pragma once

#include <string>

#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// A story as Markdown for a terminal of `columns`: question, source, answer and report, with
/// charts as block characters.
std::string page(const Scenario& scenario, const Report& report, int columns);

/// A line of approved.json: the story's name, how many claims and charts it has, and a hash over
/// the page without what was measured, and the values of charts.
std::string digest(const Scenario& scenario, const Report& report);

}  // namespace rematch::scenarios
