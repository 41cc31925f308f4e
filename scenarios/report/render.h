#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "properties/output/terminal.h"
#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// A story as text for a terminal of `width` columns: everything that its report holds, charts as
/// block characters.
std::string terminal_text(const Scenario& scenario, const Report& report, int width,
                          const cli::Paint& paint);

/// A story and its report as data; `items` in the order of the report, each an object with one
/// member named for what it is: "say", "table", "chart", "claim" or "measured".
nlohmann::ordered_json to_json(const Scenario& scenario, const Report& report);

/// A story as a page of reports/: question, source, answer, and its report without what was
/// measured. Charts are links into pictures/.
std::string markdown(const Scenario& scenario, const Report& report);

/// README.md: the room, and every question with a link to its report.
std::string readme(std::span<const Scenario> scenarios);

/// The file of a story's chart `number`, counted from 1: "last_segment-1.svg".
std::string picture_name(std::string_view story, int number);

}  // namespace rematch::scenarios
