#include "properties/hunt/registry.h"

#include <stdexcept>

#include "properties/faults/fault.h"
#include "properties/hunt/frameworks.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {

std::unique_ptr<Subject> make_subject(std::string_view name, Device device, ProcessLimits limits) {
  if (name == "engine") return std::make_unique<EngineSubject>(EngineParts{}, device);
  constexpr std::string_view kFaulty = "engine:";
  if (name.starts_with(kFaulty)) {
    if (const Fault* fault = find_fault(name.substr(kFaulty.size()))) {
      if (fault->runs()) return std::make_unique<EngineSubject>(fault->make, device);
      throw std::invalid_argument(
          "[subject] fault " + std::string(fault->id) + " cannot be run: " +
          std::string(fault->needs.empty() ? fault->equivalent : fault->needs));
    }
  }
  if (const std::optional<std::string> command = framework_command(name)) {
    return std::make_unique<ProcessSubject>(*command, limits);
  }
  if (name.find(' ') != std::string_view::npos) {
    return std::make_unique<ProcessSubject>(std::string(name), limits);
  }
  std::string known;
  for (const std::string& n : subject_names()) known += " " + n;
  throw std::invalid_argument("[subject] no subject named \"" + std::string(name) +
                              "\"; known:" + known +
                              ", or a command of at least two words that speaks the protocol");
}

std::vector<std::string> subject_names() {
  std::vector<std::string> names{"engine"};
  for (const auto& [name, subject] : known_frameworks().subjects) names.push_back(name);
  for (const Fault& fault : faults()) {
    if (fault.runs()) names.push_back("engine:" + std::string(fault.id));
  }
  return names;
}

}  // namespace rematch
