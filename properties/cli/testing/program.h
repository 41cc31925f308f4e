#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/testing/shell.h"

namespace rematch::testing {

/// Runs the program in `folder`; `before` precedes it on the command line: variables of the
/// environment.
inline Outcome run(const std::string& arguments,
                   const std::filesystem::path& folder = std::filesystem::temp_directory_path(),
                   const std::string& before = "") {
  return run_line(before + "'" REMATCH_PROGRAM "' " + arguments, folder);
}

/// A saved case that comes with the program.
inline std::string regression(const char* name) {
  return REMATCH_SOURCE_DIR "/properties/regressions/" + std::string(name) + ".json";
}

/// What a program printed as JSON, without what it said on stderr.
inline nlohmann::json json_in(const std::string& out) {
  const std::size_t begin = out.find("{\n");
  return nlohmann::json::parse(out.begin() + static_cast<std::ptrdiff_t>(begin),
                               out.begin() + static_cast<std::ptrdiff_t>(out.rfind("}\n") + 1));
}

}  // namespace rematch::testing
