#pragma once

#include "properties/case/case.h"
#include "properties/layers/draw_source.h"

namespace rematch {

/// A chain of so many layers that save this and that, on rows, whose loss requires grad, without a
/// plan.
Case random_chain(DrawSource& draw, int fewest, int most);

}  // namespace rematch
