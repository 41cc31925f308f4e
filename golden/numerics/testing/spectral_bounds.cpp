#include "golden/numerics/testing/spectral_bounds.h"

#include <algorithm>

namespace rematch::golden {
namespace {

double least(const Tensor& t) {
  const std::vector<double> values = t.to_vector();
  return *std::min_element(values.begin(), values.end());
}

/// Relative errors, in unit roundoffs, of what the weight is divided by and of what that is made
/// of.
struct Relative {
  double u = 0;
  double v = 0;
  double sigma = 0;
};

/// Weight, u and v are positive, so that each sum of n products has the relative error of its
/// factors and n roundings. The length of a vector has that of its elements, half those of a sum of
/// squares and of a rounding, and the root's; so has a quotient by it, which adds its own.
Relative relative_errors(double m, double k, bool train) {
  Relative r;
  if (train) {
    const double columns = m;
    r.v = 2 * columns + (k + 1) / 2 + 2;
  }
  const double rows = r.v + k;
  if (train) r.u = 2 * rows + (m + 1) / 2 + 2;
  r.sigma = r.u + rows + m;
  return r;
}

}  // namespace

/// With N, the largest element of weight / sigma, P, the largest inner product of it with the
/// gradient g of it, which is a sum over rows: the weight's gradient is (g - p u v^T) / sigma.
/// Implementations round p / sigma, too, or u v^T first: four roundings to spare.
Bounds spectral_norm_bounds(const Entry& entry) {
  const Tensor& weight = entry.inputs.at("weight");
  const auto rows = static_cast<double>(entry.inputs.at("x").shape()[0]);
  const auto m = static_cast<double>(weight.shape()[0]);
  const auto k = static_cast<double>(weight.shape()[1]);
  const bool train = entry.attributes.at("train").get<bool>();
  const double unit = unit_roundoff(entry.dtype);
  const Relative r = relative_errors(m, k, train);
  const double x = largest(entry.inputs.at("x"));
  const double cotangent = largest(entry.output_gradients[0]);
  // The elements of a vector of length 1 add up to 1 at least.
  const double uv = train ? 1 : largest(entry.inputs.at("u")) * largest(entry.inputs.at("v"));
  const double sums = train ? 1 : m * k * least(entry.inputs.at("u")) * least(entry.inputs.at("v"));
  const double sigma = least(weight) * sums;
  const double n = largest(weight) / sigma;
  const double of_n = (r.sigma + 1) * unit;

  Bounds b;
  b.output =
      k * x * n * (of_n + (k + 2) * unit) + (k + 1) * unit * largest(entry.inputs.at("bias"));
  b.gradients["x"] = m * cotangent * n * (of_n + (m + 1) * unit);
  b.gradients["bias"] = rows * cotangent * (rows + 1) * unit;
  const double g = rows * cotangent * x;
  const double of_g = (rows + 1) * unit * g;
  const double p = m * k * g * n;
  const double of_p = m * k * of_g * n + p * (of_n + (m * k + 1) * unit);
  const double size = g + p * uv;
  b.gradients["weight"] =
      (of_g + (of_p + p * (r.u + r.v) * unit) * uv + size * (r.sigma + 4) * unit) / sigma;
  b.after = {{"u", r.u * unit}, {"v", r.v * unit}};
  return b;
}

}  // namespace rematch::golden
