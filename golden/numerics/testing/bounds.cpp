#include "golden/numerics/testing/bounds.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "golden/numerics/testing/model_bounds.h"
#include "golden/numerics/testing/moe_bounds.h"
#include "golden/numerics/testing/recurrent_bounds.h"
#include "golden/numerics/testing/spectral_bounds.h"
#include "golden/numerics/testing/stochastic_depth_bounds.h"

// Notation: u is the unit roundoff; an upper-case name is the largest magnitude of an operand; G is
// that of the cotangents. A sum of n products a b, in any order and with or without fma, has an
// error of at most n u times the sum of the |a b| (Higham, Accuracy and Stability of Numerical
// Algorithms, ch. 3), hence at most n^2 u A B to first order. Functions are those of
// engine/math/elementary.h, whose contracts are in ulps: an ulp is at most 2 u relative.

namespace rematch::golden {
namespace {

/// A sum of n products of magnitudes up to a and b; two roundings to spare for a bias or a
/// division.
double dot(double u, double n, double a, double b) { return (n + 2) * u * n * a * b; }

struct Magnitudes {
  explicit Magnitudes(const Entry& e) : entry(e), u(unit_roundoff(e.dtype)) {
    for (const Tensor& t : e.output_gradients) g = std::max(g, largest(t));
  }
  double operator[](const char* name) const {
    const auto found = entry.inputs.find(name);
    return found == entry.inputs.end() ? 0.0 : largest(found->second);
  }
  const Shape& shape(const char* name) const { return entry.inputs.at(name).shape(); }

  const Entry& entry;
  double u;
  double g = 0;
};

Bounds linear_bounds(const Magnitudes& m) {
  const double n = count(m.shape("x")[0]);
  const double k = count(m.shape("x")[1]);
  const double out = count(m.shape("weight")[0]);
  const double x = m["x"];
  const double w = m["weight"];
  return {dot(m.u, k, x, w) + (k + 1) * m.u * m["bias"],
          {{"x", dot(m.u, out, m.g, w)},
           {"weight", dot(m.u, n, m.g, x)},
           {"bias", dot(m.u, n, m.g, 1)}},
          {}};
}

Bounds conv2d_bounds(const Magnitudes& m) {
  const Shape& w = m.shape("weight");
  const Shape& y = m.entry.outputs[0].shape();
  const double terms = count(w[1] * w[2] * w[3]);
  // An input pixel meets each kernel position of each output channel at most once.
  const double uses = count(w[0] * w[2] * w[3]);
  const double positions = count(y[0] * y[2] * y[3]);
  return {dot(m.u, terms, m["x"], m["weight"]) + (terms + 1) * m.u * m["bias"],
          {{"x", dot(m.u, uses, m.g, m["weight"])},
           {"weight", dot(m.u, positions, m.g, m["x"])},
           {"bias", dot(m.u, positions, m.g, 1)}},
          {}};
}

/// A pixel lies in at most kernel^2 windows.
Bounds max_pool_bounds(const Magnitudes& m) {
  const double k = count(m.entry.integer("kernel"));
  return {0, {{"x", dot(m.u, k * k, m.g, 1)}}, {}};
}

Bounds avg_pool_bounds(const Magnitudes& m) {
  const double k = count(m.entry.integer("kernel"));
  const double area = k * k;
  return {dot(m.u, area, m["x"], 1 / area), {{"x", dot(m.u, area, m.g, 1 / area)}}, {}};
}

/// Normalisation of sets of n values, each scaled by a weight; `sums` values per parameter.
struct Norm {
  double n;
  double sums;
  /// Largest 1/std of a set, and largest |xhat|: sqrt(n) when the statistics are the set's.
  double s;
  double xhat;
  /// Error of a centred value, and relative error of 1/std.
  double centred;
  double delta;
};

Bounds norm_bounds(const Magnitudes& m, const Norm& norm, bool statistics_depend_on_x) {
  const auto& [n, sums, s, xhat, centred, delta] = norm;
  const double u = m.u;
  const double w = m["weight"];
  const double error = centred * s + xhat * (delta + 2 * u);  // of one xhat
  Bounds b;
  b.output = w * error + 2 * u * (w * xhat + m["bias"]);
  b.gradients["weight"] = sums * (m.g * error + (sums + 1) * u * m.g * xhat);
  b.gradients["bias"] = dot(u, sums, m.g, 1);
  if (!statistics_depend_on_x) {
    b.gradients["x"] = w * s * m.g * (delta + 3 * u);
    return b;
  }
  // w s (g - mean(g) - xhat mean(g xhat)); for layer norm g carries the weight, which only moves a
  // rounding.
  const double mean_g = (n + 2) * u * m.g;
  const double mean_g_xhat = m.g * error + (n + 3) * u * m.g * xhat;
  const double size = m.g * (2 + xhat * xhat);
  b.gradients["x"] =
      w * s *
      (mean_g + xhat * mean_g_xhat + error * m.g * xhat + 4 * u * size + size * (delta + 2 * u));
  return b;
}

/// Error terms when mean and variance are computed from the sets: the mean is a sum of n values
/// up to X; a centred value has that error and its own rounding. The variance is a mean of squares:
/// relative error (n + 3) u and, from the centred values, twice their error over the deviation.
Norm norm_of_sets(const Magnitudes& m, double n, double sums, double smallest_variance) {
  const double s = 1 / std::sqrt(smallest_variance);
  const double centred = (n + 3) * m.u * m["x"];
  return {n, sums, s, std::sqrt(n), centred, centred * s + (n + 3) * m.u / 2 + 3 * m.u};
}

double variance(const Tensor& x, std::int64_t first, std::int64_t outer, std::int64_t outer_step,
                std::int64_t inner) {
  double sum = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      const double v = x.at(first + i * outer_step + j);
      sum += v;
      squares += v * v;
    }
  }
  const double n = count(outer * inner);
  return squares / n - sum / n * (sum / n);
}

Bounds batch_norm_bounds(const Magnitudes& m) {
  const Tensor& x = m.entry.inputs.at("x");
  const std::int64_t channels = x.shape()[1];
  const std::int64_t outer = x.shape()[0];
  const std::int64_t inner = x.elements() / (channels * outer);
  const double n = count(outer * inner);
  const double u = m.u;
  if (!m.entry.attributes.at("train").get<bool>()) {
    double least = 1e300;
    for (const double v : m.entry.inputs.at("running_var").to_vector()) least = std::min(least, v);
    const double s = 1 / std::sqrt(least);
    const double reach = m["x"] + m["running_mean"];
    Bounds b = norm_bounds(m, {n, n, s, s * reach, u * reach, 3 * u}, false);
    b.after = {{"running_mean", 0}, {"running_var", 0}};
    return b;
  }
  double least = 1e300;
  for (std::int64_t c = 0; c < channels; ++c) {
    least = std::min(least, variance(x, c * inner, outer, channels * inner, inner));
  }
  const Norm norm = norm_of_sets(m, n, n, least);
  Bounds b = norm_bounds(m, norm, true);
  // (1 - momentum) old + momentum new. The unbiased variance is at most twice X^2, for n >= 2.
  const double momentum = m.entry.number("momentum");
  const double new_variance = 2 * m["x"] * m["x"];
  b.after["running_mean"] = momentum * (n + 1) * u * m["x"] + 3 * u * (m["running_mean"] + m["x"]);
  b.after["running_var"] = momentum * (2 * norm.delta + 3 * u) * new_variance +
                           3 * u * (m["running_var"] + new_variance);
  return b;
}

/// The least of the sets of `cols` neighbours.
double least_variance(const Tensor& x, std::int64_t cols) {
  double least = 1e300;
  for (std::int64_t first = 0; first < x.elements(); first += cols) {
    least = std::min(least, variance(x, first, 1, 0, cols));
  }
  return least;
}

Bounds layer_norm_bounds(const Magnitudes& m) {
  const Tensor& x = m.entry.inputs.at("x");
  const std::int64_t cols = x.shape()[x.shape().rank() - 1];
  return norm_bounds(
      m, norm_of_sets(m, count(cols), count(x.elements() / cols), least_variance(x, cols)), true);
}

/// As layer_norm, but PyTorch takes y as x a + b with a = w / std, b = bias - mean a, and the sums
/// of g xhat from those of g x and of g: x and the mean then count with their own magnitude, as a
/// second error of a centred value.
Bounds group_norm_bounds(const Magnitudes& m) {
  const Tensor& x = m.entry.inputs.at("x");
  const std::int64_t cols = x.elements() / (x.shape()[0] * m.entry.integer("groups"));
  Norm norm =
      norm_of_sets(m, count(cols), count(x.elements() / x.shape()[1]), least_variance(x, cols));
  norm.centred *= 2;
  return norm_bounds(m, norm, true);
}

/// As layer_norm, with nothing to centre: the mean square has the relative error (n + 3) u, and x
/// enters without one.
Bounds rms_norm_bounds(const Magnitudes& m) {
  const Tensor& x = m.entry.inputs.at("x");
  const std::int64_t cols = x.shape()[x.shape().rank() - 1];
  const double n = count(cols);
  double least = 1e300;
  for (std::int64_t first = 0; first < x.elements(); first += cols) {
    double squares = 0;
    for (std::int64_t i = first; i < first + cols; ++i) squares += x.at(i) * x.at(i);
    least = std::min(least, squares / n);
  }
  const double delta = (n + 3) * m.u / 2 + 3 * m.u;
  return norm_bounds(m, {n, count(x.elements()) / n, 1 / std::sqrt(least), std::sqrt(n), 0, delta},
                     true);
}

Bounds exact_bounds(const Magnitudes& m) {
  Bounds b;
  for (const auto& [name, unused] : m.entry.gradients) b.gradients[name] = 0;
  return b;
}

/// One product by a factor that is itself rounded to the dtype.
Bounds factor_bounds(const Magnitudes& m) { return {2 * m.u * m["x"], {{"x", 2 * m.u * m.g}}, {}}; }

/// Phi is within 2 ulp of 1, then one product. The derivative is Phi + x phi: |x| phi(x) (4 + x^2)
/// is below 1.2, which bounds the error of exp (2 ulp) and of its argument (x^2/2, two roundings).
Bounds gelu_bounds(const Magnitudes& m) {
  return {5 * m.u * m["x"], {{"x", m.g * (4 + 2 * 1.2 + 3) * m.u}}, {}};
}

/// y is within 3 ulp and at most 1; g (1 - y y) moves by 2 y dy and has three roundings.
Bounds tanh_bounds(const Magnitudes& m) { return {6 * m.u, {{"x", m.g * (2 * 6 + 3) * m.u}}, {}}; }

/// As for tanh; g y (1 - y) moves by (1 - 2 y) dy.
Bounds sigmoid_bounds(const Magnitudes& m) { return {6 * m.u, {{"x", m.g * (6 + 3) * m.u}}, {}}; }

/// s is within 3 ulp, and x s has one product more. g s (1 + x (1 - s)), where 1 - s may be taken
/// from s: it is then within 7 u of 1, x (1 - s) within 8 u X, and s |x| (1 - s) is below 0.3; the
/// derivative is below 1.1 and has the 6 u of s, a sum and two products more.
Bounds silu_bounds(const Magnitudes& m) {
  return {7 * m.u * m["x"], {{"x", m.g * (8 * m["x"] + 10) * m.u}}, {}};
}

/// exp(x - max) has the relative error of exp, 2 ulp, and of its argument, u |x - max| <= 2 X u;
/// numerator and sum both have it, and the sum `cols` roundings more.
double softmax_error(const Magnitudes& m) {
  const Shape& shape = m.shape("x");
  return (2 * (4 + 2 * m["x"]) + count(shape[shape.rank() - 1]) + 2) * m.u;
}

/// y (g - sum(g y)), with sum(y) = 1.
Bounds softmax_bounds(const Magnitudes& m) {
  const double error = softmax_error(m);
  const Shape& shape = m.shape("x");
  const double sum = m.g * (error + (count(shape[shape.rank() - 1]) + 2) * m.u);
  return {error, {{"x", 2 * m.g * error + sum + 4 * m.u * m.g}}, {}};
}

/// A row is a token's copy, its gradient a sum over at most all tokens.
Bounds embedding_bounds(const Magnitudes& m) {
  const double tokens = count(m.entry.inputs.at("tokens").elements());
  return {0, {{"weight", dot(m.u, tokens, m.g, 1)}}, {}};
}

/// Cosine and sine are rounded to the dtype, then come two products and a sum. Before that each is
/// off by 2^-52, and by four roundings of an angle that is at most 2 radians here: less than 16 of
/// float64's roundoffs. The gradient is turned as well.
Bounds rotary_bounds(const Magnitudes& m) {
  const double each = (2 * 2 + 2) * m.u + 2 * 16 * 0x1p-53;
  return {each * m["x"], {{"x", each * m.g}}, {}};
}

/// Rows are copied.
Bounds kv_cache_bounds(const Magnitudes& m) {
  Bounds b = exact_bounds(m);
  b.after["cache"] = 0;
  return b;
}

/// Quotients are rounded once, alike everywhere; so is the sum of two halves.
Bounds delayed_scaling_bounds(const Magnitudes& m) {
  Bounds b = exact_bounds(m);
  b.after["scale"] = 0;
  return b;
}

/// All that is rounded is rounded alike everywhere.
Bounds delayed_float8_bounds(const Magnitudes& m) {
  Bounds b = exact_bounds(m);
  b.after["history"] = 0;
  return b;
}

/// Scores are sums of `size` products, S at most, times a factor; e is their error. As in softmax,
/// probabilities have the relative error of both exponentials, of their arguments and of the sum.
/// An output is a mean of values, weighted by them. Of the gradients, that of a probability is a
/// sum over `size`, D at most; that of a score is p (gp - sum(p gp)), where the sum may be taken
/// from the output instead; those of queries and keys are sums over keys, and over the queries of
/// all heads that share a key.
Bounds attention_bounds(const Magnitudes& m) {
  const Shape& x = m.shape("x");
  const Shape& memory = m.shape("memory");
  const double heads = count(m.entry.integer("heads"));
  const double size = count(x[2]) / heads;
  const double keys = count(memory[1]);
  const double queries = count(x[1]) * heads / (count(memory[2]) / (2 * size));
  const double factor = 1 / std::sqrt(size);
  const double u = m.u;
  const double k = m["memory"];
  const double scores = factor * size * m["x"] * k;
  const double e = factor * dot(u, size, m["x"], k) + 3 * u * scores;
  const double p = 2 * (2 * e + 2 * u * scores + 4 * u) + (keys + 3) * u;
  const double output = k * (p + (keys + 2) * u);
  const double d = size * m.g * k;
  const double of_sum = dot(u, size, m.g, k) + size * m.g * output + d * (p + (keys + 2) * u);
  const double of_score = dot(u, size, m.g, k) + of_sum + 2 * d * (p + 4 * u);
  const double gradient_of_x =
      factor * (keys * k * of_score + dot(u, keys, 2 * d, k)) + 3 * u * factor * keys * 2 * d * k;
  const double of_keys = factor * (queries * m["x"] * of_score + dot(u, queries, 2 * d, m["x"])) +
                         3 * u * factor * queries * 2 * d * m["x"];
  const double of_values = queries * m.g * p + dot(u, queries, m.g, 1);
  return {output, {{"x", gradient_of_x}, {"memory", std::max(of_keys, of_values)}}, {}};
}

Bounds sum_bounds(const Magnitudes& m) {
  return {dot(m.u, count(m.entry.inputs.at("x").elements()), m["x"], 1), {{"x", 0}}, {}};
}

/// A mean of n squares of differences up to D; the gradient is 2 / n g (x - target).
Bounds mse_bounds(const Magnitudes& m) {
  const double n = count(m.entry.inputs.at("x").elements());
  const double d = m["x"] + m["target"];
  return {(n + 5) * m.u * d * d, {{"x", 5 * m.u * 2 / n * m.g * d}}, {}};
}

/// log p = x - max - log(sum exp(x - max)), of magnitude up to L = 2 X + log(cols), with the
/// relative error of the sum and two roundings and an ulp at that magnitude; p = exp(log p) turns
/// its error into a relative one and adds its own.
Bounds cross_entropy_bounds(const Magnitudes& m) {
  const double rows = count(m.shape("x")[0]);
  const double size = 2 * m["x"] + std::log(count(m.shape("x")[1]));
  const double log_p = softmax_error(m) + 4 * m.u * size;
  return {log_p + (rows + 1) * m.u * size, {{"x", m.g / rows * (log_p + (4 + 3) * m.u)}}, {}};
}

using Rule = Bounds (*)(const Magnitudes&);

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> table{
      {"embedding", embedding_bounds},
      {"delayed_scaling", delayed_scaling_bounds},
      {"delayed_float8", delayed_float8_bounds},
      {"kv_cache", kv_cache_bounds},
      {"attention", attention_bounds},
      {"rotary", rotary_bounds},
      {"linear", linear_bounds},
      {"conv2d", conv2d_bounds},
      {"max_pool2d", max_pool_bounds},
      {"avg_pool2d", avg_pool_bounds},
      {"batch_norm", batch_norm_bounds},
      {"layer_norm", layer_norm_bounds},
      {"group_norm", group_norm_bounds},
      {"rms_norm", rms_norm_bounds},
      {"relu", exact_bounds},
      {"gelu", gelu_bounds},
      {"silu", silu_bounds},
      {"tanh", tanh_bounds},
      {"sigmoid", sigmoid_bounds},
      {"softmax", softmax_bounds},
      {"leaky_relu", factor_bounds},
      {"add", exact_bounds},
      {"mul", exact_bounds},
      {"hooked", exact_bounds},
      {"scale", factor_bounds},
      {"sum", sum_bounds},
      {"concat", exact_bounds},
      {"split", exact_bounds},
      {"flatten", exact_bounds},
      {"mse_loss", mse_bounds},
      {"cross_entropy", cross_entropy_bounds},
  };
  return table;
}

}  // namespace

Bounds bounds_of(const Entry& entry) {
  if (const auto rule = rules().find(entry.op); rule != rules().end()) {
    return rule->second(Magnitudes(entry));
  }
  if (entry.op == "spectral_norm") return spectral_norm_bounds(entry);
  if (entry.op == "moe") return moe_bounds(entry);
  if (entry.op == "stochastic_depth" || entry.op == "early_exit") {
    return stochastic_depth_bounds(entry);
  }
  if (entry.op == "gru" || entry.op == "lstm") return recurrent_bounds(entry);
  if (entry.op == "sgd") return sgd_bounds(entry);
  if (entry.op == "adam") return adam_bounds(entry);
  if (entry.op == "mlp" || entry.op == "cnn") return model_bounds(entry);
  throw std::runtime_error("[golden] no error bound for op " + entry.op);
}

double unit_roundoff(DType dtype) { return dtype == DType::float32 ? 0x1p-24 : 0x1p-53; }

double largest(const Tensor& t) {
  double result = 0;
  for (const double v : t.to_vector()) result = std::max(result, std::abs(v));
  return result;
}

}  // namespace rematch::golden
