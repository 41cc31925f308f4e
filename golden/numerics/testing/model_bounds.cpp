#include "golden/numerics/testing/model_bounds.h"

#include <algorithm>
#include <cmath>

#include "golden/numerics/testing/run_entry.h"

namespace rematch::golden {
namespace {

double largest_gradient(const Entry& entry) {
  double result = 0;
  for (const auto& [name, t] : entry.inputs) {
    if (name.starts_with("gradient")) result = std::max(result, largest(t));
  }
  return result;
}

double smallest_gradient(const Entry& entry) {
  double result = 1e300;
  for (const auto& [name, t] : entry.inputs) {
    if (!name.starts_with("gradient")) continue;
    for (const double v : t.to_vector()) result = std::min(result, std::abs(v));
  }
  return result;
}

/// The entry with float64 inputs.
Entry upcast(const Entry& entry) {
  Entry wide = entry;
  wide.dtype = DType::float64;
  for (auto& [name, t] : wide.inputs) {
    if (is_floating(t.dtype())) t = Tensor::from(t.to_vector(), t.shape(), DType::float64);
  }
  return wide;
}

}  // namespace

/// After t steps the buffer is a sum of at most t gradients, each with at most 3 t roundings
/// (product, addition and the rounded momentum); w takes t updates lr * buffer, 3 roundings each.
Bounds sgd_bounds(const Entry& entry) {
  const double u = unit_roundoff(entry.dtype);
  const double t = static_cast<double>(entry.after.size());
  const double buffer = t * largest_gradient(entry);
  const double lr = entry.number("lr");
  Bounds b;
  for (const auto& [name, value] : entry.after) {
    const double w = largest(entry.inputs.at("parameter")) + t * lr * buffer;
    b.after[name] = t * (lr * buffer * (3 * t + 3) * u + u * w);
  }
  return b;
}

/// m is a weighted mean of gradients with signs, so its error is 3 t u G absolute; v is one of
/// squares, so its error is (3 t + 2) u relative, half of that in the root. The corrected m is
/// m / (1 - b1^t), 1 - b1^t >= 1/10; the corrected root is at least the smallest gradient.
Bounds adam_bounds(const Entry& entry) {
  const double u = unit_roundoff(entry.dtype);
  const double t = static_cast<double>(entry.after.size());
  const double g = largest_gradient(entry);
  const double ratio = g / smallest_gradient(entry);
  const double lr = entry.number("lr");
  const double update = lr * (10 * 3 * t * u * ratio + ratio * (1.5 * t + 1 + 8) * u);
  Bounds b;
  for (const auto& [name, value] : entry.after) {
    const double w = largest(entry.inputs.at("parameter")) + t * lr * ratio;
    b.after[name] = t * (update + u * w);
  }
  return b;
}

/// Every rounding on the way acts like a relative change of an operand by u; what such a change of
/// each single input element does to a result is measured in float64, one element at a time, and
/// added up: the componentwise condition of the result. The factor counts roundings: a value passes
/// at most the sum of the reduction lengths of its layers, and a few more for each function, on the
/// way forward and as many backward, in every step. 128 a step covers the mlp (3 + 5 + 5 + 8 and
/// about 30 in functions and norm, twice), 384 the cnn (9 + 32 * 3 + 8 + 3 and as many, twice).
Bounds model_bounds(const Entry& entry) {
  constexpr double kChange = 0x1p-20;
  const double roundings =
      static_cast<double>(entry.integer("steps")) * (entry.op == "mlp" ? 128 : 384);
  const double u = unit_roundoff(entry.dtype);
  const Entry wide = upcast(entry);
  const EntryOutcome base = run_entry(wide);
  Bounds b;
  for (const auto& [name, value] : entry.after) b.after[name] = u * largest(value);
  for (const auto& [input, t] : wide.inputs) {
    if (t.dtype() != DType::float64) continue;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      Entry changed = wide;
      Tensor moved = t.clone();
      moved.data<double>()[i] *= 1 + kChange;
      changed.inputs[input] = moved;
      const EntryOutcome outcome = run_entry(changed);
      for (auto& [name, bound] : b.after) {
        double difference = 0;
        const Tensor& before = base.after.at(name);
        for (std::int64_t j = 0; j < before.elements(); ++j) {
          difference = std::max(difference, std::abs(outcome.after.at(name).at(j) - before.at(j)));
        }
        bound += roundings * u * difference / kChange;
      }
    }
  }
  return b;
}

}  // namespace rematch::golden
