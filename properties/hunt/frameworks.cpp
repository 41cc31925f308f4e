#include "properties/hunt/frameworks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "properties/case/json_fields.h"
#include "properties/subjects/child_process.h"

namespace rematch {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;
using Variables = std::map<std::string, std::string>;

constexpr std::string_view kFrameworks = "frameworks";
constexpr std::size_t kMostFrameworksBytes = std::size_t{1} << 20;
constexpr std::size_t kLongestFrameworksText = 4096;
constexpr int kMostFrameworksNesting = 6;

const Json& need_object(JsonFields& fields, const char* name) {
  const Json& value = fields.need(name);
  if (!value.is_object()) fields.fail(fields.path(name), "an object", show_json(value));
  return value;
}

/// Only the variables of an environment matter here: ci/maintain/frameworks reads the rest.
Variables read_variables(const Json& environment, const std::string& path) {
  JsonFields fields(kFrameworks, environment, path);
  Variables variables;
  const Json* list = fields.find("variables");
  if (list == nullptr) return variables;
  for (const auto& [name, value] : list->items()) {
    if (!value.is_string()) fields.fail(fields.path("variables"), "texts", show_json(*list));
    variables[name] = value.get<std::string>();
  }
  return variables;
}

Frameworks::Subject read_subject(const Json& json, const std::string& path,
                                 const std::map<std::string, Variables>& environments) {
  JsonFields fields(kFrameworks, json, path);
  Frameworks::Subject subject;
  fields.read("environment", subject.environment, kLongestFrameworksText);
  fields.read("arguments", subject.arguments, kLongestFrameworksText);
  fields.finish();
  const auto found = environments.find(subject.environment);
  if (found == environments.end()) {
    fields.fail(fields.path("environment"), "one of the environments", subject.environment);
  }
  if (subject.arguments.empty()) fields.fail(fields.path("arguments"), "arguments", "none");
  subject.variables = found->second;
  return subject;
}

/// Adds the file's name to what `read` refuses.
void in_file(const fs::path& file, const std::function<void()>& read) {
  try {
    read();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file.string() + ": " + error.what());
  }
}

std::optional<std::string> variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

fs::path python_of(const std::string& environment) {
  if (const auto chosen = variable(python_variable(environment))) return *chosen;
  if (const auto chosen = variable("REMATCH_PYTHON")) return *chosen;
  fs::path folder;
  if (const auto cache = variable("XDG_CACHE_HOME")) {
    folder = *cache;
  } else if (const auto home = variable("HOME")) {
    folder = fs::path(*home) / ".cache";
  }
  const fs::path python = folder / "rematch" / "frameworks" / environment / "bin" / "python";
  std::error_code ignored;
  const bool unfinished =
      fs::exists(python.parent_path().parent_path() / "being-installed", ignored);
  if (unfinished) {
    throw std::invalid_argument(fmt::format(
        "{} is still being installed, or its installation was interrupted: then `ci/setup "
        "--frameworks {}` makes it anew",
        environment, environment));
  }
  if (fs::exists(python, ignored)) return python;
  throw std::invalid_argument(fmt::format(
      "[subject] {0}: no Python with it was found at {1}; make one with `ci/setup --frameworks "
      "{0}`, or name yours in {2}",
      environment, python.string(), python_variable(environment)));
}

/// The framework whose adapter runs checkpoint() functions that users wrote.
constexpr std::string_view kOwnFunctions = "pytorch";

/// "mine.py:my_checkpoint".
bool is_own_function(std::string_view name) {
  const std::size_t at = name.rfind(".py:");
  return at != std::string_view::npos && at + 4 < name.size() &&
         name.find(' ') == std::string_view::npos;
}

}  // namespace

std::optional<fs::path> beside_program(std::string_view installed, std::string_view in_sources) {
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place :
       {bin / "../share/rematch" / installed, bin / "../../../properties" / in_sources}) {
    const fs::path found = place.lexically_normal();
    if (fs::exists(found, error)) return found;
  }
  return std::nullopt;
}

Frameworks load_frameworks(const fs::path& folder) {
  std::map<fs::path, Json> files;
  std::map<std::string, Variables> environments;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path file = entry.path() / "framework.json";
    if (!fs::exists(file)) continue;
    in_file(file, [&] {
      std::ifstream in(file, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      files[file] = parse_json(kFrameworks, text, kMostFrameworksBytes, kMostFrameworksNesting);
      JsonFields fields(kFrameworks, files[file], "");
      fields.need_version("format", 1);
      if (fields.find("environments") == nullptr) return;
      for (const auto& [name, environment] : need_object(fields, "environments").items()) {
        environments[name] = read_variables(environment, "environments." + name);
      }
    });
  }
  // An environment may be that of another framework.
  Frameworks frameworks;
  for (const auto& [file, json] : files) {
    in_file(file, [&, &file = file, &json = json] {
      JsonFields fields(kFrameworks, json, "");
      fields.need("format");
      fields.find("environments");
      for (const auto& [name, subject] : need_object(fields, "subjects").items()) {
        frameworks.subjects[name] = read_subject(subject, "subjects." + name, environments);
        frameworks.subjects[name].folder = file.parent_path();
      }
      fields.finish();
    });
  }
  return frameworks;
}

const Frameworks& known_frameworks() {
  static const Frameworks frameworks = [] {
    const auto package = beside_program("python", "python");
    return package ? load_frameworks(*package / "rematch/frameworks") : Frameworks();
  }();
  return frameworks;
}

std::string python_variable(std::string_view environment) {
  std::string name = "REMATCH_PYTHON_";
  for (const char c : environment) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return name;
}

std::optional<std::string> framework_command(std::string_view name) {
  const bool is_own = is_own_function(name);
  const auto found = known_frameworks().subjects.find(is_own ? kOwnFunctions : name);
  if (found == known_frameworks().subjects.end()) return std::nullopt;
  Frameworks::Subject subject = found->second;
  if (is_own) subject.arguments = shell_word(std::string(name));
  std::string command;
  for (const auto& [variable, value] : subject.variables) {
    command += fmt::format("{}={} ", variable, shell_word(value));
  }
  if (const auto package = beside_program("python", "python")) {
    command +=
        fmt::format("PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} ", shell_word(package->string()));
  }
  return fmt::format("{}exec {} -m rematch {}", command,
                     shell_word(python_of(subject.environment).string()), subject.arguments);
}

std::optional<fs::path> framework_profile(std::string_view name) {
  if (is_own_function(name)) name = kOwnFunctions;
  const auto found = known_frameworks().subjects.find(name);
  if (found == known_frameworks().subjects.end()) return std::nullopt;
  // That of the variant, or of what it is a variant of.
  const std::size_t colon = name.find(':');
  std::string variant(colon == std::string_view::npos ? "" : name.substr(colon));
  for (;; variant.erase(variant.rfind(':'))) {
    std::string file = "profile" + variant + ".json";
    std::replace(file.begin(), file.end(), ':', '_');
    const fs::path profile = found->second.folder / file;
    if (std::error_code ignored; fs::exists(profile, ignored)) return profile;
    if (variant.empty()) return std::nullopt;
  }
}

}  // namespace rematch
