#pragma once

#include <string>

#include "properties/output/terminal.h"
#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// A story as text for a terminal of `width` columns: everything that its report holds, charts as
/// block characters.
std::string terminal_text(const Scenario& scenario, const Report& report, int width,
                          const cli::Paint& paint);

}  // namespace rematch::scenarios
