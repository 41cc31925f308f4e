#pragma once

#include <span>

#include "properties/tape/tape.h"
#include "properties/tape/vars.h"

namespace rematch::rounding {

// Smooth functions on a tape. Where a bound on a derivative is a number, it is the largest
// magnitude that the derivative has anywhere, rounded up.

Tape::Var gelu(Tape& tape, Tape::Var x);
Tape::Var silu(Tape& tape, Tape::Var x);
Tape::Var tanh(Tape& tape, Tape::Var x);
Tape::Var sigmoid(Tape& tape, Tape::Var x);
Tape::Var exp(Tape& tape, Tape::Var x);
/// Logarithm of a positive number.
Tape::Var log(Tape& tape, Tape::Var x);
Tape::Var reciprocal(Tape& tape, Tape::Var x);
/// 1 / sqrt(x + epsilon), of x that is not negative.
Tape::Var inverse_root(Tape& tape, Tape::Var x, double epsilon);
/// sqrt(x), of x that is not negative. Its derivatives are not on the tape.
Tape::Var root(Tape& tape, Tape::Var x);

/// exp(x - largest) and its sum. The largest is a constant here, for the results do not depend on
/// it.
struct Exponentials {
  Vars shifted;
  Vars x;
  Var sum = 0;
};
Exponentials exponentials(Tape& tape, std::span<const Var> row);

}  // namespace rematch::rounding
