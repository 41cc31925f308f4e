#pragma once

#include "scenarios/report/report.h"

namespace rematch::scenarios::trade {

/// What a checkpoint of each of some blocks saves, and what it costs.
void worth_checkpointing(Report& report);

/// The tutorial's `layer = checkpoint(layer)`, and what stands in its place.
void the_snippet(Report& report);

/// What the tutorial says of the mechanism, each with a number.
void the_mechanism(Report& report);

}  // namespace rematch::scenarios::trade
