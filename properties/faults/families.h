#pragma once

#include <span>

#include "properties/faults/fault.h"

namespace rematch {

// One file a family.
std::span<const Fault> random_faults();
std::span<const Fault> gradient_faults();
std::span<const Fault> argument_faults();
std::span<const Fault> state_faults();
std::span<const Fault> partition_faults();
std::span<const Fault> fidelity_faults();
std::span<const Fault> lifetime_faults();
std::span<const Fault> concurrency_faults();
std::span<const Fault> error_faults();

}  // namespace rematch
