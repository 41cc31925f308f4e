#pragma once

#include <span>
#include <string>

#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// The file of a story's chart `number`, counted from 1: "last_segment-1.svg".
std::string picture_name(std::string_view story, int number);

/// A story as a section of README.md: question, source, answer, and its report without what was
/// measured. Charts are links into pictures/.
std::string markdown(const Scenario& scenario, const Report& report);

/// What README.md says before the sections: the room, and every question with a link.
std::string readme_head(std::span<const Scenario> scenarios);

}  // namespace rematch::scenarios
