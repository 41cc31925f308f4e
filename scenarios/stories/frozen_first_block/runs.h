#pragma once

#include "scenarios/report/scenario.h"

namespace rematch::scenarios::frozen {

inline constexpr std::int64_t kBatch = 32;
inline constexpr int kShortSteps = 24;

/// Eight wirings side by side for kShortSteps steps, compared to the bit after each; with
/// options.epochs three of them go on, for that many epochs.
void tell_runs(std::int64_t samples, const Options& options, Report& report);

}  // namespace rematch::scenarios::frozen
