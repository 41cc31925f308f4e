#include "golden/numerics/testing/moe_bounds.h"

#include <algorithm>
#include <cstdint>

namespace rematch::golden {

// Notation: that of bounds.cpp. Logits are sums over features, S at most, with error e.
// Probabilities have the relative error of two logits (that of the largest cancels), of both
// exponentials, of their arguments and of the sum. An output is a sum over the chosen experts,
// whose probabilities are below one in all, of sums over features, Y at most. Of the gradients,
// that of a probability is a sum over features, D at most; that of a logit is p (gp - sum(p gp));
// that of x has one part for each expert and one for the router; those of parameters are sums over
// rows. Implementations may round a product with a probability, and each part of a sum, once more.
Bounds moe_bounds(const Entry& entry) {
  const Tensor& input = entry.inputs.at("x");
  const double u = unit_roundoff(entry.dtype);
  const auto dot = [u](double n, double a, double b) { return (n + 4) * u * n * a * b; };
  const double features = count(input.shape()[input.shape().rank() - 1]);
  const double rows = count(input.elements()) / features;
  const double experts = count(entry.inputs.at("router").shape()[0]);
  const double x = largest(input);
  const double r = largest(entry.inputs.at("router"));
  const double w = largest(entry.inputs.at("experts"));
  double g = 0;
  for (const Tensor& t : entry.output_gradients) g = std::max(g, largest(t));

  const double e = dot(features, x, r);
  const double p = 2 * (e + 2 * u * features * x * r + 4 * u) + (experts + 3) * u;
  const double sum = p + (experts + 3) * u;
  const double y = features * w * x;
  const double of_y = dot(features, x, w);
  const double d = features * g * y;
  const double of_probability = dot(features, g, y) + features * g * of_y;
  const double of_logit = 2 * of_probability + d * sum + 2 * d * (p + 4 * u);
  const double back = features * g * w;
  return {y * sum + of_y,
          {{"x", experts * r * of_logit + dot(experts, 2 * d, r) + back * sum +
                     dot(features, g, w) + (experts + 2) * u * (experts * 2 * d * r + back)},
           {"router", rows * x * of_logit + dot(rows, 2 * d, x)},
           {"experts", rows * g * x * p + dot(rows, g, x)}},
          {{"load", 0}}};
}

}  // namespace rematch::golden
