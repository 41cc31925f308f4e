#pragma once

#include "properties/cli/check_report.h"
#include "properties/hunt/hunt_options.h"

namespace rematch::cli {

/// Judges the regressions up to the first violation, or all if the check keeps going, and shrinks
/// what violates a law.
void judge_saved_cases(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome);

/// The report of a finding of the hunt.
Report report_of(const CheckArguments& a, std::uint64_t seed, const Finding& finding,
                 const Versions& versions);

/// Writes the smallest case of each known bug and limit, where a folder was named and they were
/// shrunk. Throws std::runtime_error where that cannot be written.
void save_known(const CheckArguments& a, const HuntOptions& o, const HuntResult& result);

}  // namespace rematch::cli
