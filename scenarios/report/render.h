#pragma once

#include <string>
#include <vector>

#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// A story as a page: question, source, answer, and its report without what was measured. Charts
/// are links to the files of picture_name() beside it.
std::string markdown(const Scenario& scenario, const Report& report);
/// The same for a terminal of `columns`: with what was measured, and with charts as block
/// characters.
std::string terminal_text(const Scenario& scenario, const Report& report, int columns);

/// The charts of a report as SVG, in order.
std::vector<std::string> pictures(const Report& report);

/// A line of approved.json: the story's name, how many claims and charts it has, and a hash over
/// the page and the charts.
std::string digest(const Scenario& scenario, const Report& report);

/// The file of a story's chart `number`, counted from 1: "last_segment-1.svg".
std::string picture_name(std::string_view story, int number);

}  // namespace rematch::scenarios
