#pragma once

#include <string>

#include "properties/cli/check_report.h"

namespace rematch::cli {

/// The check as JUnit XML, as dashboards of CI read it: a test for each law that was asked, failed
/// where it has a new finding, skipped where it judged nothing; and one for the check itself.
std::string junit_xml(const CheckArguments& a, const HuntOptions& o, const CheckOutcome& outcome);

}  // namespace rematch::cli
