#pragma once

#include <string>

#include "properties/hunt/profile.h"
#include "properties/laws/law.h"
#include "properties/record/subject.h"

namespace rematch::cli {

/// The report that a tracker's template asks for: title, versions, what was expected and came, the
/// script in the bare framework, and the cause, which is that of the profile's `entry`, or what the
/// law says.
std::string issue_of(const Violation& violation, const KnownDivergence* entry,
                     const Declaration& declared, const std::string& script);

/// A test of Python's unittest that runs what the script runs, and fails where the script shows a
/// difference. Throws UsageError where the script's last line is none of the known ones.
std::string test_of(const Violation& violation, const std::string& script);

}  // namespace rematch::cli
