#include "properties/subjects/registry.h"

#include <stdexcept>

#include "properties/faults/fault.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {

std::unique_ptr<Subject> make_subject(std::string_view name, Device device) {
  if (name == "engine") return std::make_unique<EngineSubject>(nullptr, device);
  constexpr std::string_view kFaulty = "engine:";
  if (name.starts_with(kFaulty)) {
    if (const Fault* fault = find_fault(name.substr(kFaulty.size()))) {
      return std::make_unique<EngineSubject>(fault->mechanics, device);
    }
  }
  std::string known;
  for (const std::string& n : subject_names()) known += " " + n;
  throw std::invalid_argument("[subject] no subject named \"" + std::string(name) +
                              "\"; known:" + known);
}

std::vector<std::string> subject_names() {
  std::vector<std::string> names{"engine"};
  for (const Fault& fault : faults()) names.push_back("engine:" + std::string(fault.id));
  return names;
}

}  // namespace rematch
