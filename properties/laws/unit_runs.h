#pragma once

#include <optional>
#include <vector>

#include "properties/laws/law.h"

namespace rematch {

/// Whether each run of the unit sends what it makes, or its backward the gradient of its operand.
bool sends_values(const UnitReading& u);

/// What one forward and its backwards show of such a unit; `seen`: collectives of all units.
struct UnitRuns {
  const Evidence& e;
  const UnitReading& unit;
  int step = 0;
  int microbatch = 0;
  const std::vector<CollectiveReading>& seen;
  /// What the plain run shows, nullptr if this is it.
  const std::vector<CollectiveReading>* plain = nullptr;
};

/// Judges them; the violation's place tells what of the unit it is.
std::optional<Violation> judge_runs(const UnitRuns& runs);

}  // namespace rematch
