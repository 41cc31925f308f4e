#pragma once

#include <vector>

#include "properties/tape/tape.h"
#include "properties/tape/vars.h"

namespace rematch::rounding {

/// The loss of rows of outputs.
Tape::Var mean_squared_error(Tape& tape, const Vars& x, const std::vector<double>& target);
/// `target`: the class of each row.
Tape::Var cross_entropy(Tape& tape, const Vars& x, const std::vector<double>& target);

}  // namespace rematch::rounding
