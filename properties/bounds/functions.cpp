#include "properties/bounds/functions.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rematch::rounding {

Bounds::Var gelu(Bounds& bounds, Bounds::Var x) {
  const double at = bounds[x].value;
  const double density = std::exp(-at * at / 2) / std::sqrt(2 * std::numbers::pi);
  const double below = std::erfc(-at / std::numbers::sqrt2) / 2;
  return bounds.smooth(x, {.value = at * below,
                           .first = below + at * density,
                           .second = density * (2 - at * at),
                           .most_second = 0.8,
                           .most_third = 0.8,
                           // 1 + erf(...) cancels where it is small.
                           .magnitude = std::fabs(at),
                           .first_magnitude = 1 + std::fabs(at) * density});
}

Bounds::Var silu(Bounds& bounds, Bounds::Var x) {
  const double at = bounds[x].value;
  const double s = 1 / (1 + std::exp(-at));
  return bounds.smooth(x, {.value = at * s,
                           .first = s * (1 + at * (1 - s)),
                           .second = s * (1 - s) * (2 + at * (1 - 2 * s)),
                           .most_second = 0.5,
                           .most_third = 0.5,
                           .magnitude = std::fabs(at) * s,
                           .first_magnitude = 1 + std::fabs(at) * s});
}

Bounds::Var tanh(Bounds& bounds, Bounds::Var x) {
  const double t = std::tanh(bounds[x].value);
  return bounds.smooth(x, {.value = t,
                           .first = 1 - t * t,
                           .second = -2 * t * (1 - t * t),
                           .most_second = 0.8,
                           .most_third = 2,
                           .magnitude = std::fabs(t),
                           .first_magnitude = 1 + 2 * t * t});
}

Bounds::Var sigmoid(Bounds& bounds, Bounds::Var x) {
  const double s = 1 / (1 + std::exp(-bounds[x].value));
  return bounds.smooth(x, {.value = s,
                           .first = s * (1 - s),
                           .second = s * (1 - s) * (1 - 2 * s),
                           .most_second = 0.1,
                           .most_third = 0.125,
                           .magnitude = s,
                           .first_magnitude = s});
}

Bounds::Var exp(Bounds& bounds, Bounds::Var x) {
  const double e = std::exp(bounds[x].value);
  const double most = std::exp(bounds.high(x));
  return bounds.smooth(x, {e, e, e, most, most, e, e});
}

Bounds::Var log(Bounds& bounds, Bounds::Var x) {
  const double at = bounds[x].value;
  const double low = std::max(bounds.low(x), 0.0);
  return bounds.smooth(x, {.value = std::log(at),
                           .first = 1 / at,
                           .second = -1 / (at * at),
                           .most_second = 1 / (low * low),
                           .most_third = 2 / (low * low * low),
                           .magnitude = std::fabs(std::log(at)),
                           .first_magnitude = 1 / at});
}

Bounds::Var reciprocal(Bounds& bounds, Bounds::Var x) {
  const double at = bounds[x].value;
  const double low = std::max(bounds.low(x), 0.0);
  return bounds.smooth(x, {.value = 1 / at,
                           .first = -1 / (at * at),
                           .second = 2 / (at * at * at),
                           .most_second = 2 / (low * low * low),
                           .most_third = 6 / (low * low * low * low),
                           .magnitude = 1 / at,
                           .first_magnitude = 1 / (at * at)});
}

Bounds::Var inverse_root(Bounds& bounds, Bounds::Var x, double epsilon) {
  const double at = bounds[x].value + epsilon;
  const double low = std::max(bounds.low(x), 0.0) + epsilon;
  const double value = 1 / std::sqrt(at);
  return bounds.smooth(x, {.value = value,
                           .first = -value / (2 * at),
                           .second = 3 * value / (4 * at * at),
                           .most_second = 0.75 * std::pow(low, -2.5),
                           .most_third = 1.875 * std::pow(low, -3.5),
                           .magnitude = value,
                           .first_magnitude = value / at});
}

Bounds::Var root(Bounds& bounds, Bounds::Var x) {
  // sqrt(x) - sqrt(y) = (x - y) / (sqrt(x) + sqrt(y)).
  const double value = std::sqrt(bounds[x].value);
  const double least = value + std::sqrt(std::max(bounds.low(x), 0.0));
  const double most = std::sqrt(bounds.high(x)) - value;
  const double error = least > 0 ? std::max(bounds[x].error / least, most) : most;
  return bounds.smooth(bounds.leaf({value, error}),
                       {.value = value, .first = 1, .magnitude = value});
}

Exponentials exponentials(Bounds& t, std::span<const Var> row) {
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
