#include <algorithm>
#include <vector>

#include "scenarios/scenario.h"

namespace rematch::scenarios {

extern const Scenario frozen_first_block;

std::span<const Scenario> scenarios() {
  static const std::vector<Scenario> kScenarios = {frozen_first_block};
  return kScenarios;
}

const Scenario* find_scenario(std::string_view name) {
  const auto all = scenarios();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Scenario& scenario) { return scenario.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace rematch::scenarios
