#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "properties/hunt/finding.h"
#include "properties/hunt/tally.h"

namespace rematch {

/// JSON on one line.
std::string to_json(const Tally& tally);
std::string to_json(const ViolatingCase& violating);
std::string to_json(const Finding& finding);

/// They give back what to_json() wrote. Text that is anything else throws std::invalid_argument
/// with the place, what was expected and what came.
Tally tally_from_json(const nlohmann::json& json);
ViolatingCase violating_from_json(const nlohmann::json& json);
Finding finding_from_json(const nlohmann::json& json);
/// On one line. A text in it may quote what a subject wrote, whatever that was.
std::string line_of(const nlohmann::json& json);
/// Parses text that came from another process.
nlohmann::json parse_tally_text(std::string_view text);

}  // namespace rematch
