#include <algorithm>
#include <vector>

#include "scenarios/scenario.h"

namespace rematch::scenarios {

std::span<const Scenario> scenarios() {
  static const std::vector<Scenario> kScenarios = {};
  return kScenarios;
}

const Scenario* find_scenario(std::string_view name) {
  const auto all = scenarios();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Scenario& scenario) { return scenario.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace rematch::scenarios
