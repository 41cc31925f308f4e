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

/// Writes a subject in the language of the shell: it says hello as the script's name, and ends by
/// `then` in its first run. `implements`: JSON; every feature there is by default.
inline std::string write_subject(const ScratchFolder& folder, const std::string& name,
                                 const std::string& then, const std::string& implements = "") {
  folder.write(name + ".sh",
               "read -r line <&3\n"
               "all=$(printf '%s' \"$line\" | sed 's/.*\"features\":\\(\\[[^]]*\\]\\).*/\\1/')\n"
               "printf "
               "'{\"hello\":{\"protocol\":1,\"name\":\"%s\",\"versions\":{\"shell\":\"<5.2>\"},"
               "\"exports\":true,'"
               "'\"observes\":[\"outputs\"],\"implements\":%s}}\\n' " +
                   name + (implements.empty() ? " \"$all\"" : " '" + implements + "'") + " >&4\n" +
                   then + "\n");
  return " --no-regressions --subject 'sh " + name + ".sh'";
}

}  // namespace rematch::testing
