#pragma once

#include <optional>
#include <vector>

#include "properties/laws/law.h"

namespace rematch {

/// Whether each run of the unit sends what it makes, or its backward the gradient of its operand.
bool sends_values(const UnitReading& u);

/// Collectives of all units (`seen`) in one forward and its backwards, to be judged for such a
/// unit.
struct UnitRuns {
  const Evidence& e;
  const UnitReading& unit;
  int step = 0;
  int microbatch = 0;
  const std::vector<CollectiveReading>& seen;
  /// Those of the plain run, nullptr if this is it.
  const std::vector<CollectiveReading>* plain = nullptr;
};

/// Judges them; the violation's place tells what of the unit it is.
std::optional<Violation> judge_runs(const UnitRuns& runs);

}  // namespace rematch
