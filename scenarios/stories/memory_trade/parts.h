#pragma once

#include "scenarios/report/report.h"

namespace rematch::scenarios::trade {

/// Savings and costs of a checkpoint, block by block.
void worth_checkpointing(Report& report);

/// The tutorial's `layer = checkpoint(layer)`, and what stands in its place.
void the_snippet(Report& report);

/// The tutorial's statements about the mechanism, each with a number.
void the_mechanism(Report& report);

}  // namespace rematch::scenarios::trade
