#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/report/scenario.h"

namespace rematch::scenarios::frozen {

inline constexpr std::uint64_t kSeed = 1;
inline constexpr std::int64_t kBatch = 32;
inline constexpr int kShortSteps = 24;

/// The order in which epoch `epoch` (from 0) goes through pictures 0 to `samples` - 1.
std::vector<std::int64_t> epoch_order(std::int64_t samples, int epoch);

/// Conditions that decide whether a checkpoint's output requires grad, case by case.
void tell_rules(Report& report);

/// Eight wirings side by side for kShortSteps steps, compared to the bit after each. Returns a hash
/// of the plain run's weights at the end, nothing when it was stopped.
std::optional<std::uint64_t> tell_short_runs(std::int64_t samples, const Options& options,
                                             Report& report);

/// Three wirings for options.epochs epochs. `short_hash`: what the plain run's weights must hash to
/// after kShortSteps steps.
void tell_long_runs(std::int64_t samples, const Options& options, std::uint64_t short_hash,
                    Report& report);

}  // namespace rematch::scenarios::frozen
