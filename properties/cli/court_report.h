#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "properties/court/court.h"

namespace rematch::cli {

/// The cases that show the worst of each planner, by the name of their file.
std::map<std::string, Case> worst_cases(const CourtResult& result);

/// What the promises were worth, and how far the plans are from the best ones.
std::string court_text(const CourtResult& result);
nlohmann::ordered_json court_json(const CourtResult& result);

/// No promise and no other law was broken, and no plan is better than the optimum.
bool is_kept(const CourtResult& result);

}  // namespace rematch::cli
