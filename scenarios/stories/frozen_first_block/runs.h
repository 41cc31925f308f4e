#pragma once

#include "scenarios/report/scenario.h"

namespace rematch::scenarios::frozen {

inline constexpr std::int64_t kBatch = 32;
inline constexpr int kSteps = 24;

/// Eight wirings side by side for kSteps steps, compared to the bit after each.
void tell_runs(const Options& options, Report& report);

}  // namespace rematch::scenarios::frozen
