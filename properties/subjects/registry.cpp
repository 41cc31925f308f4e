#include "properties/subjects/registry.h"

#include <stdexcept>
#include <string>

#include "properties/subjects/engine_subject.h"

namespace rematch {

std::unique_ptr<Subject> make_subject(std::string_view name) {
  if (name == "engine") return std::make_unique<EngineSubject>();
  std::string known;
  for (const std::string_view n : subject_names()) known += " " + std::string(n);
  throw std::invalid_argument("[subject] no subject named \"" + std::string(name) +
                              "\"; known:" + known);
}

std::vector<std::string_view> subject_names() { return {"engine"}; }

}  // namespace rematch
