#pragma once

#include "properties/hunt/hunt_options.h"
#include "properties/hunt/hunt_result.h"

namespace rematch {

/// Judges cases 0, 1, 2, ... until a limit, the stop flag or the first violation (unless
/// keep_going), and shrinks violating cases. Memory does not grow with the number of cases. Apart
/// from times and device_work, the result is a function of options and number of cases, not of
/// `jobs` (as long as shrinking stays within its time). An exception of make_subject is passed on;
/// one of a run violates the law `survives`.
HuntResult hunt(const HuntOptions& options);

}  // namespace rematch
