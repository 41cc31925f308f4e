#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/layers/scope.h"

namespace rematch {

/// The *.json files of `directory`, by name. Throws std::invalid_argument when it is no directory.
std::vector<std::filesystem::path> regression_files(const std::filesystem::path& directory);

/// Where the regressions of the program `executable` lie: beside an installed program in
/// ../share/rematch/regressions, for one in a build tree (<root>/build/<preset>/bin) in
/// <root>/properties/regressions. nullopt when neither exists.
std::optional<std::filesystem::path> default_regressions(const std::filesystem::path& executable);

/// Names of what the case needs and the scope lacks, each preceded by a space. The case is valid.
std::string lacking(const Scope& scope, const Case& c);

/// Reads one case from a file, as case_from_json() does. Throws std::invalid_argument with the
/// file's name when it cannot be read or holds no valid case.
Case load_case(const std::filesystem::path& file, Options* found_with = nullptr);

/// Writes the case, as to_json() does; the file appears complete or not at all. Throws
/// std::runtime_error with the file's name.
void save_case(const Case& c, const std::filesystem::path& file, const Options& found_with = {});

}  // namespace rematch
