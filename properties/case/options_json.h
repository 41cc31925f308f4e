#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "properties/case/json_fields.h"
#include "properties/layers/options.h"

namespace rematch {

/// Reads the fields `options` and `shares` of a hello:
///
///     "options": {"mode": ["default", "static_graph"], "promise": ["none", "early_stop",
///     "nested"]}, "shares": {"promise": 0.4}
///
/// All values are equally frequent where there is no share.
std::vector<OptionSpec> read_options(JsonFields& hello);
/// Adds these fields to a hello, unless there are no options.
void write_options(const std::vector<OptionSpec>& specs, nlohmann::json& hello);

}  // namespace rematch
