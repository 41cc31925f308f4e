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
constexpr std::size_t kMostUnobserved = 64;

const Json& need_object(JsonFields& fields, const char* name) {
  const Json& value = fields.need(name);
  if (!value.is_object()) fields.fail(fields.path(name), "an object", show_json(value));
  return value;
}

/// The rest of an environment is read by ci/maintain/frameworks.
Variables read_environment(const Json& environment, const std::string& path, std::string& module) {
  JsonFields fields(kFrameworks, environment, path);
  fields.read("module", module, kLongestFrameworksText);
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
  fields.read("runs", subject.runs, kLongestFrameworksText);
  fields.finish();
  const auto found = environments.find(subject.environment);
  if (found == environments.end()) {
    fields.fail(fields.path("environment"), "one of the environments", subject.environment);
  }
  if (subject.arguments.empty()) fields.fail(fields.path("arguments"), "arguments", "none");
  if (subject.runs.empty()) fields.fail(fields.path("runs"), "what a user writes", "nothing");
  subject.variables = found->second;
  return subject;
}

std::vector<std::string> read_texts(JsonFields& fields, const char* name) {
  std::vector<std::string> texts;
  const Json* list = fields.find(name);
  if (list == nullptr) return texts;
  need_array(kFrameworks, *list, fields.path(name), kMostUnobserved);
  for (const Json& text : *list) {
    if (!text.is_string()) fields.fail(fields.path(name), "texts", show_json(*list));
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

Frameworks::Unobserved read_unobserved(const Json& json, const std::string& path) {
  JsonFields fields(kFrameworks, json, path);
  Frameworks::Unobserved one;
  one.subjects = read_texts(fields, "subjects");
  one.laws = read_texts(fields, "laws");
  fields.read("why", one.why, kLongestFrameworksText);
  fields.finish();
  return one;
}

bool has(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
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

constexpr const char* kPythonOfPath = "python3";

/// Asks a Python which of the modules that it is given it has, beside NumPy; one line.
constexpr const char* kFindModules = R"(
import sys
from importlib.util import find_spec
def has(module):
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
print(*[module for module in sys.argv[1:] if has("numpy") and has(module)]))";

/// Whether `python3` of the PATH has the framework of the environment. It is asked once, for all
/// environments, since it may take a second to start.
bool python_of_path_has(const std::string& environment) {
  static const std::string found = [] {
    std::string command =
        fmt::format("{} -c {}", kPythonOfPath, shell_word(std::string(kFindModules)));
    for (const auto& [name, module] : known_frameworks().modules) {
      command += " " + shell_word(module);
    }
    try {
      // The request is empty, and has to be read before it is answered.
      ChildProcess python("read -r request <&3; exec " + command + " >&4");
      constexpr ChildProcess::Seconds kLimit(20);
      return fmt::format(" {} ", python.exchange("", kLimit, "finding frameworks"));
    } catch (const ProcessFailure&) {
      // There is no such Python.
      return std::string();
    }
  }();
  const auto module = known_frameworks().modules.find(environment);
  return module != known_frameworks().modules.end() &&
         found.find(" " + module->second + " ") != std::string::npos;
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
  if (python_of_path_has(environment)) return kPythonOfPath;
  throw std::invalid_argument(fmt::format(
      "[subject] {0}: no Python with it was found, neither at {1} nor as `{3}`; make one with "
      "`ci/setup --frameworks {0}`, or name yours with --python or in {2}",
      environment, python.string(), python_variable(environment), kPythonOfPath));
}

/// The framework whose adapter runs checkpoint() functions that users wrote.
constexpr std::string_view kOwnFunctions = "pytorch";

/// Commands of the Python package, each with a subject whose environment has what it imports.
const std::map<std::string_view, std::string_view> kCommandsInPython{{"judge", "pytorch"},
                                                                     {"plan", "pytorch"},
                                                                     {"report", "pytorch"},
                                                                     {"safe", "pytorch"},
                                                                     {"zoo", "transformers"}};

/// A subject that Python runs, as it was named.
struct Named {
  /// In known_frameworks().
  std::map<std::string, Frameworks::Subject, std::less<>>::const_iterator subject;
  /// "mine.py:my_checkpoint"; empty for a framework.
  std::string function;
  /// " --layers layers.py:LAYERS"
  std::string_view options;
};

/// The place of a function that the text begins with, "mine.py:my_checkpoint"; empty if there is
/// none. Blanks are part of a file's name where there is such a file.
std::string_view own_function(std::string_view text) {
  constexpr std::string_view kScript = ".py:";
  for (std::size_t at = 0; (at = text.find(kScript, at)) != std::string_view::npos; ++at) {
    const std::string_view function = text.substr(0, text.find(' ', at));
    const std::string_view file = text.substr(0, at + kScript.size() - 1);
    if (function.size() == file.size() + 1) continue;
    std::error_code ignored;
    if (file.find(' ') == std::string_view::npos || fs::is_regular_file(file, ignored)) {
      return function;
    }
  }
  return {};
}

std::optional<Named> named(std::string_view name) {
  const auto& subjects = known_frameworks().subjects;
  const std::string_view function = own_function(name);
  const std::string_view first = function.empty() ? name.substr(0, name.find(' ')) : function;
  const auto subject = subjects.find(function.empty() ? first : kOwnFunctions);
  if (subject == subjects.end()) return std::nullopt;
  return Named{subject, std::string(function), name.substr(first.size())};
}

/// "VARIABLE=VALUE ... exec PYTHON -m rematch ".
std::string start_of(const Frameworks::Subject& subject, const std::string& python) {
  std::string command;
  for (const auto& [variable, value] : subject.variables) {
    command += fmt::format("{}={} ", variable, shell_word(value));
  }
  if (const auto package = beside_program("python", "python")) {
    command +=
        fmt::format("PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} ", shell_word(package->string()));
  }
  return fmt::format("{}exec {} -m rematch ", command,
                     shell_word(python.empty() ? python_of(subject.environment).string() : python));
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
  Frameworks frameworks;
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
        environments[name] =
            read_environment(environment, "environments." + name, frameworks.modules[name]);
      }
    });
  }
  // An environment may be that of another framework.
  for (const auto& [file, json] : files) {
    in_file(file, [&, &file = file, &json = json] {
      JsonFields fields(kFrameworks, json, "");
      fields.need("format");
      fields.find("environments");
      for (const auto& [name, subject] : need_object(fields, "subjects").items()) {
        frameworks.subjects[name] = read_subject(subject, "subjects." + name, environments);
        frameworks.subjects[name].folder = file.parent_path();
      }
      if (const Json* list = fields.find("unobserved")) {
        need_array(kFrameworks, *list, fields.path("unobserved"), kMostUnobserved);
        for (std::size_t i = 0; i < list->size(); ++i) {
          frameworks.unobserved.push_back(read_unobserved((*list)[i], indexed("unobserved", i)));
          frameworks.unobserved.back().framework = file.parent_path().filename().string();
        }
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

std::string Frameworks::why_unobserved(std::string_view subject, std::string_view law) const {
  const std::string_view framework = subject.substr(0, subject.find(':'));
  const auto says = [&](const Unobserved& u) {
    return u.framework == framework && has(u.laws, law) &&
           (u.subjects.empty() || has(u.subjects, subject));
  };
  const auto found = std::find_if(unobserved.begin(), unobserved.end(), says);
  return found == unobserved.end() ? "" : found->why;
}

std::string python_variable(std::string_view environment) {
  std::string name = "REMATCH_PYTHON_";
  for (const char c : environment) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return name;
}

std::optional<std::string> framework_command(std::string_view name, const std::string& python) {
  const std::optional<Named> found = named(name);
  if (!found) return std::nullopt;
  const Frameworks::Subject& subject = found->subject->second;
  return start_of(subject, python) +
         (found->function.empty() ? subject.arguments : shell_word(found->function)) +
         std::string(found->options);
}

std::vector<std::string> commands_in_python() {
  std::vector<std::string> names;
  for (const auto& [name, subject] : kCommandsInPython) names.emplace_back(name);
  return names;
}

std::optional<std::string> python_command(std::string_view word) {
  const auto command = kCommandsInPython.find(word);
  const bool is_command = command != kCommandsInPython.end();
  const std::optional<Named> found = named(is_command ? command->second : word);
  if (!found || !found->options.empty()) return std::nullopt;
  const Frameworks::Subject& subject = found->subject->second;
  if (!is_command && found->function.empty() && subject.arguments != word) return std::nullopt;
  return fmt::format("{}{} \"$@\"", start_of(subject, ""), shell_word(std::string(word)));
}

std::string advice_for(std::string_view name, std::string_view printed) {
  constexpr std::string_view kLacks = "No module named ";
  const std::size_t at = printed.find(kLacks);
  if (at == std::string_view::npos) return {};
  std::string_view module = printed.substr(at + kLacks.size());
  module = module.substr(0, module.find('\n'));
  if (named(name)) {
    return fmt::format(
        "This Python has no module {}: install it there, or name another Python with --python",
        module);
  }
  return fmt::format(
      "The Python of this command has no module {}. A framework, or mine.py:FUNCTION, named "
      "without a Python is started with one that has it (`rematch subjects` lists them)",
      module);
}

std::optional<fs::path> framework_profile(std::string_view name) {
  const std::optional<Named> found = named(name);
  if (!found) return std::nullopt;
  // That of the variant, or of what it is a variant of.
  const std::string& subject = found->subject->first;
  const std::size_t colon = subject.find(':');
  std::string variant(colon == std::string::npos ? "" : subject.substr(colon));
  for (;; variant.erase(variant.rfind(':'))) {
    std::string file = "profile" + variant + ".json";
    std::replace(file.begin(), file.end(), ':', '_');
    const fs::path profile = found->subject->second.folder / file;
    if (std::error_code ignored; fs::exists(profile, ignored)) return profile;
    if (variant.empty()) return std::nullopt;
  }
}

}  // namespace rematch
