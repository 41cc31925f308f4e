#pragma once

#include <cstdint>
#include <string>

#include "properties/cli/check_report.h"
#include "properties/hunt/hunt_options.h"

namespace rematch::cli {

/// A command line that runs a case of the hunt again.
std::string numbered_line(const CheckArguments& a, std::uint64_t seed, std::uint64_t index);

/// The report of a finding of the hunt. Its file is reserved.
Report report_of(const CheckArguments& a, std::uint64_t seed, const Finding& finding,
                 const Versions& versions);

/// Judges the regressions, then the corpus: up to the first violation, or all if the check keeps
/// going.
void judge_saved_cases(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome);

}  // namespace rematch::cli
