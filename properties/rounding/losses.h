#pragma once

#include <vector>

#include "properties/bounds/bounds.h"
#include "properties/bounds/vars.h"

namespace rematch::rounding {

/// The loss of rows of outputs.
Bounds::Var mean_squared_error(Bounds& bounds, const Vars& x, const std::vector<double>& target);
/// `target`: the class of each row.
Bounds::Var cross_entropy(Bounds& bounds, const Vars& x, const std::vector<double>& target);

}  // namespace rematch::rounding
