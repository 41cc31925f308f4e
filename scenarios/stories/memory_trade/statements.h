#pragma once

#include "scenarios/report/scenario.h"

namespace rematch::scenarios::trade {

/// The tutorial's `layer = checkpoint(layer)`, and what stands in its place.
void the_snippet(Report& report);

/// What the tutorial says of the mechanism, each with a number.
void the_mechanism(Report& report);

}  // namespace rematch::scenarios::trade
