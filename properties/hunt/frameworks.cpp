#include "properties/hunt/frameworks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
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

/// Of an environment only its variables matter here: ci/maintain/frameworks reads the rest.
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
  if (fs::exists(python, ignored)) return python;
  throw std::invalid_argument(fmt::format(
      "[subject] {0}: no Python with it was found at {1}; make one with `ci/setup --frameworks "
      "{0}`, or name yours in {2}",
      environment, python.string(), python_variable(environment)));
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

Frameworks load_frameworks(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  try {
    const Json json = parse_json(kFrameworks, text, kMostFrameworksBytes, kMostFrameworksNesting);
    JsonFields fields(kFrameworks, json, "");
    fields.need_version("format", 1);
    std::map<std::string, Variables> environments;
    for (const auto& [name, environment] : need_object(fields, "environments").items()) {
      environments[name] = read_variables(environment, "environments." + name);
    }
    Frameworks frameworks;
    for (const auto& [name, subject] : need_object(fields, "subjects").items()) {
      frameworks.subjects[name] = read_subject(subject, "subjects." + name, environments);
    }
    fields.finish();
    return frameworks;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file.string() + ": " + error.what());
  }
}

const Frameworks& known_frameworks() {
  static const Frameworks frameworks = [] {
    const auto file = beside_program("frameworks.json", "subjects/frameworks.json");
    return file ? load_frameworks(*file) : Frameworks();
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
  const auto found = known_frameworks().subjects.find(name);
  if (found == known_frameworks().subjects.end()) return std::nullopt;
  const Frameworks::Subject& subject = found->second;
  std::string command;
  for (const auto& [variable, value] : subject.variables) {
    command += fmt::format("{}={} ", variable, shell_word(value));
  }
  if (const auto package = beside_program("python", "subjects/python/src")) {
    command +=
        fmt::format("PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} ", shell_word(package->string()));
  }
  return fmt::format("{}exec {} -m rematch {}", command,
                     shell_word(python_of(subject.environment).string()), subject.arguments);
}

std::optional<fs::path> framework_profile(std::string_view name) {
  if (!known_frameworks().subjects.contains(name)) return std::nullopt;
  // That of the variant, or of what it is a variant of.
  for (std::string stem(name);; stem.erase(stem.rfind(':'))) {
    std::string file = "profiles/" + stem + ".json";
    std::replace(file.begin(), file.end(), ':', '_');
    if (const auto found = beside_program(file, "subjects/" + file)) return found;
    if (stem.find(':') == std::string::npos) return std::nullopt;
  }
}

}  // namespace rematch
