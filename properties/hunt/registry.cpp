#include "properties/hunt/registry.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "properties/case/nearest.h"
#include "properties/faults/fault.h"
#include "properties/hunt/frameworks.h"
#include "properties/subjects/child_process.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {

namespace {

constexpr std::string_view kFaulty = "engine:";

struct Added {
  std::string name;
  SubjectMaker make;
};

std::vector<Added>& added() {
  static std::vector<Added> list;
  return list;
}

const Added* find_added(std::string_view name) {
  const auto found = std::find_if(added().begin(), added().end(),
                                  [&](const Added& subject) { return subject.name == name; });
  return found == added().end() ? nullptr : &*found;
}

/// Whether it is the path of a file that can be run, "./my_subject".
bool is_program(std::string_view name) {
  std::error_code ignored;
  return name.find('/') != std::string_view::npos &&
         std::filesystem::is_regular_file(name, ignored) &&
         ::access(std::string(name).c_str(), X_OK) == 0;
}

/// A process, with advice where it was started with a Python that lacks something.
std::unique_ptr<Subject> start(const std::string& command, const ProcessLimits& limits,
                               const std::string& name) {
  try {
    return std::make_unique<ProcessSubject>(command, limits, name);
  } catch (const SubjectBroken& broken) {
    const std::string advice = advice_for(name, broken.what());
    if (advice.empty()) throw;
    throw SubjectBroken(std::string(broken.what()) + "\n" + advice);
  }
}

}  // namespace

std::unique_ptr<Subject> make_subject(std::string_view name, Device device, ProcessLimits limits,
                                      const std::string& python) {
  if (name == "engine") return std::make_unique<EngineSubject>(EngineParts{}, device);
  if (const Added* own = find_added(name)) return own->make(device);
  if (name.starts_with(kFaulty)) {
    if (const Fault* fault = find_fault(name.substr(kFaulty.size()))) {
      if (fault->runs()) return std::make_unique<EngineSubject>(fault->make, device);
      throw std::invalid_argument(
          "[subject] fault " + std::string(fault->id) + " cannot be run: " +
          std::string(fault->needs.empty() ? fault->equivalent : fault->needs));
    }
  }
  std::optional<std::string> command = framework_command(name, python);
  if (!command && is_program(name)) command = shell_word(std::string(name));
  if (!command && name.find(' ') != std::string_view::npos) command = name;
  if (command && device != Device::cpu) {
    throw std::invalid_argument("[subject] --device is for subjects of this process; \"" +
                                std::string(name) + "\" chooses its own");
  }
  if (command) return start(*command, limits, std::string(name));
  const bool is_script = name.find(".py") != std::string_view::npos;
  throw std::invalid_argument(
      "[subject] no subject is named \"" + std::string(name) + "\"" +
      did_you_mean(name, subject_names()) +
      (is_script ? " (a checkpoint() function of your own is named FILE.py:FUNCTION, such as "
                   "mine.py:my_checkpoint)"
                 : " (`rematch subjects` lists them; a path, or a command of two words or more, is "
                   "started as a process)"));
}

std::vector<std::string> subject_names() {
  std::vector<std::string> names{"engine"};
  for (const Added& subject : added()) names.push_back(subject.name);
  for (const auto& [name, subject] : known_frameworks().subjects) names.push_back(name);
  for (const Fault& fault : faults()) {
    if (fault.runs()) names.push_back("engine:" + std::string(fault.id));
  }
  return names;
}

void add_subject(const std::string& name, SubjectMaker make) {
  const bool word = !name.empty() && std::none_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isspace(c) != 0;
  });
  if (!word) {
    throw std::invalid_argument("[subject] expected a name of one word, got \"" + name + "\"");
  }
  const std::vector<std::string> names = subject_names();
  if (name.starts_with(kFaulty) || std::find(names.begin(), names.end(), name) != names.end()) {
    throw std::invalid_argument("[subject] there is a subject named \"" + name + "\" already");
  }
  added().push_back({name, std::move(make)});
}

std::string default_subject() { return added().empty() ? "engine" : added().front().name; }

bool is_in_process(std::string_view name) {
  return name == "engine" || name.starts_with(kFaulty) || find_added(name) != nullptr;
}

}  // namespace rematch
