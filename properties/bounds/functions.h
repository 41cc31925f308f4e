#pragma once

#include <span>

#include "properties/bounds/bounds.h"
#include "properties/bounds/vars.h"

namespace rematch::rounding {

// Smooth functions with their bounds. Where a bound on a derivative is a number, it is the largest
// magnitude that the derivative has anywhere, rounded up.

Bounds::Var gelu(Bounds& bounds, Bounds::Var x);
Bounds::Var silu(Bounds& bounds, Bounds::Var x);
Bounds::Var tanh(Bounds& bounds, Bounds::Var x);
Bounds::Var sigmoid(Bounds& bounds, Bounds::Var x);
Bounds::Var exp(Bounds& bounds, Bounds::Var x);
/// Logarithm of a positive number.
Bounds::Var log(Bounds& bounds, Bounds::Var x);
Bounds::Var reciprocal(Bounds& bounds, Bounds::Var x);
/// 1 / sqrt(x + epsilon), of x that is not negative.
Bounds::Var inverse_root(Bounds& bounds, Bounds::Var x, double epsilon);
/// sqrt(x), of x that is not negative. Its derivatives are not analysed.
Bounds::Var root(Bounds& bounds, Bounds::Var x);

/// exp(x - largest) and its sum. The largest is a constant here, for the results do not depend on
/// it.
struct Exponentials {
  Vars shifted;
  Vars x;
  Var sum = 0;
};
Exponentials exponentials(Bounds& bounds, std::span<const Var> row);

}  // namespace rematch::rounding
