#pragma once

#include <string>

#include "properties/hunt/profile.h"
#include "properties/laws/law.h"
#include "properties/record/subject.h"

namespace rematch::cli {

/// Facts for a report, in the order of a tracker's template: a title with what is seen and what the
/// case has, what was expected and came, the script in the bare framework, the cause as the
/// profile's `entry` says it, and versions.
std::string issue_of(const Case& c, const Violation& violation, const KnownDivergence* entry,
                     const Declaration& declared, const std::string& script);

/// A test of Python's unittest that runs what the script runs, and fails where the script shows a
/// difference. Throws UsageError where the script's last line is none of the known ones.
std::string test_of(const Violation& violation, const std::string& script);

}  // namespace rematch::cli
