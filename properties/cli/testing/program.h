#pragma once

#include <filesystem>
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

}  // namespace rematch::testing
