#include "golden/numerics/testing/stochastic_depth_bounds.h"

#include <algorithm>
#include <cstdint>

namespace rematch::golden {

// Notation: that of bounds.cpp. A result is a sum over features and one more term, which is rounded
// once more; so is the gradient of x. That of the weight is a sum over rows.
Bounds stochastic_depth_bounds(const Entry& entry) {
  const Tensor& input = entry.inputs.at("x");
  const double u = unit_roundoff(entry.dtype);
  const auto dot = [u](double n, double a, double b) { return (n + 2) * u * n * a * b; };
  const double features = count(input.shape()[input.shape().rank() - 1]);
  const double rows = count(input.elements()) / features;
  const double x = largest(input);
  const double w = largest(entry.inputs.at("weight"));
  double g = 0;
  for (const Tensor& t : entry.output_gradients) g = std::max(g, largest(t));
  const auto sum = [&](double a) { return dot(features, a, w) + 2 * u * (a + features * a * w); };
  return {sum(x), {{"x", sum(g)}, {"weight", dot(rows, g, x)}}, {}};
}

}  // namespace rematch::golden
