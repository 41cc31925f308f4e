#pragma once

#include "properties/hunt/finding.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt_options.h"
#include "properties/record/subject.h"

namespace rematch {

/// Shrinks a violating case with this subject: as long as the law is violated, and by what the
/// profile explained or did not explain before.
Finding shrink_violation(const HuntOptions& options, const ViolatingCase& violating,
                         Subject& subject, Workspace& workspace);

}  // namespace rematch
