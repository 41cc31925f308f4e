#pragma once

#include <filesystem>
#include <string>

#include "properties/cli/check_report.h"
#include "properties/hunt/hunt.h"

namespace rematch::cli {

std::string replay_line(const CheckArguments& a, const std::filesystem::path& file);

/// Judges the regressions and the corpus: up to the first violation, or all if the check keeps
/// going.
void judge_saved_cases(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome);

/// Adds to the corpus what the hunt found, and unless it was interrupted those of its cases that
/// reach what the corpus has not. Throws std::runtime_error where that cannot be written.
void add_to_corpus(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome);

}  // namespace rematch::cli
