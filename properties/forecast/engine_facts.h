#pragma once

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/layers/facts.h"

namespace rematch {

/// Facts of the reference engine's layers: what each saves, draws and computes, as their files in
/// properties/layers say. A layer that records (grad mode on, an operand or a parameter requires
/// grad) saves after its kernel has run; x and weight as they are after a cast (autocast). Casts
/// save nothing.
///
/// `host_kernels`: convolutions run on the CPU, with workspace from the ledger, for which its
/// kernels are asked (golden/approvals/steps holds them to what was approved); a device has its
/// own.
void engine_facts(const Case& c, const Geometry& geometry, bool host_kernels, Facts& facts);

}  // namespace rematch
