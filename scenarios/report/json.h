#pragma once

#include <nlohmann/json.hpp>

#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// A story and its report as data; `items` in the order of the report, each an object with one
/// member named for what it is: "say", "table", "chart", "claim" or "measured".
nlohmann::ordered_json to_json(const Scenario& scenario, const Report& report);

}  // namespace rematch::scenarios
