#pragma once

#include "properties/case/case.h"
#include "properties/case/features.h"
#include "properties/faults/fault.h"
#include "properties/laws/law.h"

namespace rematch {

/// Whether the reference engine with the fault violates the law in the same case, and where values
/// are compared, in the same array and in the same direction (how far depends on how often a
/// segment is recomputed). Where the engine cannot tell, it does not contradict: in cases with
/// masks or early stop a law that it keeps, or another array; a custom layer; a run that fails; a
/// difference as small as rounding; values of operators within layers.
bool is_like_fault(const Violation& violation, const Case& c, const FeatureSet& features,
                   const Fault& fault);

}  // namespace rematch
