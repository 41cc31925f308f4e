#pragma once

#include "properties/case/case.h"
#include "properties/faults/fault.h"
#include "properties/laws/law.h"

namespace rematch {

/// Whether the reference engine with the fault shows that the violation is another one: in the same
/// case it moves the same element of the same buffer in the other direction. Places, which Reach
/// knows, do not tell an update that happens twice from one that is lost.
bool contradicts(const Violation& violation, const Case& c, const Fault& fault);

}  // namespace rematch
