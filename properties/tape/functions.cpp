#include "properties/tape/functions.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rematch::rounding {

Tape::Var gelu(Tape& tape, Tape::Var x) {
  const double at = tape[x].value;
  const double density = std::exp(-at * at / 2) / std::sqrt(2 * std::numbers::pi);
  const double below = std::erfc(-at / std::numbers::sqrt2) / 2;
  return tape.smooth(x, {.value = at * below,
                         .first = below + at * density,
                         .second = density * (2 - at * at),
                         .most_second = 0.8,
                         .most_third = 0.8,
                         // 1 + erf(...) cancels where it is small.
                         .magnitude = std::fabs(at),
                         .first_magnitude = 1 + std::fabs(at) * density});
}

Tape::Var silu(Tape& tape, Tape::Var x) {
  const double at = tape[x].value;
  const double s = 1 / (1 + std::exp(-at));
  return tape.smooth(x, {.value = at * s,
                         .first = s * (1 + at * (1 - s)),
                         .second = s * (1 - s) * (2 + at * (1 - 2 * s)),
                         .most_second = 0.5,
                         .most_third = 0.5,
                         .magnitude = std::fabs(at) * s,
                         .first_magnitude = 1 + std::fabs(at) * s});
}

Tape::Var tanh(Tape& tape, Tape::Var x) {
  const double t = std::tanh(tape[x].value);
  return tape.smooth(x, {.value = t,
                         .first = 1 - t * t,
                         .second = -2 * t * (1 - t * t),
                         .most_second = 0.8,
                         .most_third = 2,
                         .magnitude = std::fabs(t),
                         .first_magnitude = 1 + 2 * t * t});
}

Tape::Var sigmoid(Tape& tape, Tape::Var x) {
  const double s = 1 / (1 + std::exp(-tape[x].value));
  return tape.smooth(x, {.value = s,
                         .first = s * (1 - s),
                         .second = s * (1 - s) * (1 - 2 * s),
                         .most_second = 0.1,
                         .most_third = 0.125,
                         .magnitude = s,
                         .first_magnitude = s});
}

Tape::Var exp(Tape& tape, Tape::Var x) {
  const double e = std::exp(tape[x].value);
  const double most = std::exp(tape.high(x));
  return tape.smooth(x, {e, e, e, most, most, e, e});
}

Tape::Var log(Tape& tape, Tape::Var x) {
  const double at = tape[x].value;
  const double low = std::max(tape.low(x), 0.0);
  return tape.smooth(x, {.value = std::log(at),
                         .first = 1 / at,
                         .second = -1 / (at * at),
                         .most_second = 1 / (low * low),
                         .most_third = 2 / (low * low * low),
                         .magnitude = std::fabs(std::log(at)),
                         .first_magnitude = 1 / at});
}

Tape::Var reciprocal(Tape& tape, Tape::Var x) {
  const double at = tape[x].value;
  const double low = std::max(tape.low(x), 0.0);
  return tape.smooth(x, {.value = 1 / at,
                         .first = -1 / (at * at),
                         .second = 2 / (at * at * at),
                         .most_second = 2 / (low * low * low),
                         .most_third = 6 / (low * low * low * low),
                         .magnitude = 1 / at,
                         .first_magnitude = 1 / (at * at)});
}

Tape::Var inverse_root(Tape& tape, Tape::Var x, double epsilon) {
  const double at = tape[x].value + epsilon;
  const double low = std::max(tape.low(x), 0.0) + epsilon;
  const double value = 1 / std::sqrt(at);
  return tape.smooth(x, {.value = value,
                         .first = -value / (2 * at),
                         .second = 3 * value / (4 * at * at),
                         .most_second = 0.75 * std::pow(low, -2.5),
                         .most_third = 1.875 * std::pow(low, -3.5),
                         .magnitude = value,
                         .first_magnitude = value / at});
}

Tape::Var root(Tape& tape, Tape::Var x) {
  // sqrt(x) - sqrt(y) = (x - y) / (sqrt(x) + sqrt(y)).
  const double value = std::sqrt(tape[x].value);
  const double least = value + std::sqrt(std::max(tape.low(x), 0.0));
  const double most = std::sqrt(tape.high(x)) - value;
  const double error = least > 0 ? std::max(tape[x].error / least, most) : most;
  return tape.smooth(tape.leaf({value, error}), {.value = value, .first = 1, .magnitude = value});
}

Exponentials exponentials(Tape& t, std::span<const Var> row) {
  double largest = t[row[0]].value;
  for (const Var v : row) largest = std::max(largest, t[v].value);
  const Var top = t.leaf({largest, 0});
  Exponentials e;
  for (const Var v : row) e.shifted.push_back(t.plus(v).plus(top, -1).sum());
  e.x = map(e.shifted, [&](Var v) { return exp(t, v); });
  for (const Var v : e.x) t.plus(v);
  e.sum = t.sum();
  return e;
}

}  // namespace rematch::rounding
