#pragma once

#include <vector>

#include "bench/compare/comparison.h"

namespace rematch::compare {

/// What a person should read of a comparison whose benchmarks are judged: regressions first, then
/// improvements, then notes. A counter that changed by the same amount in three benchmarks of a
/// model or more is one finding.
std::vector<Finding> findings_of(const Comparison& comparison);

}  // namespace rematch::compare
