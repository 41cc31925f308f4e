#include "properties/laws/slope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "properties/layers/layer.h"
#include "properties/record/direction.h"

namespace rematch {
namespace {

/// Calls visit(i, value) for each element of a float64 array; for nothing if it is no such array.
template <class Visit>
void for_each_element(const Record& record, const Observation& o, Visit visit) {
  const auto elements = static_cast<std::size_t>(o.shape.elements());
  if (!o.present || o.dtype != DType::float64 || o.bytes != elements * sizeof(double)) return;
  const std::byte* at = record.bytes_of(o).data();
  for (std::size_t i = 0; i < elements; ++i) {
    double value = 0;
    std::memcpy(&value, at + i * sizeof(value), sizeof(value));
    visit(i, value);
  }
}

/// The product of a gradient, less what it began with, and its direction.
double along(const Case& c, const Record& record, const Observation& gradient, std::uint64_t array,
             double prior) {
  const std::vector<double> d = direction(c.seed, array, gradient.shape.elements());
  double sum = 0;
  for_each_element(record, gradient,
                   [&](std::size_t i, double value) { sum += (value - prior) * d[i]; });
  return sum;
}

}  // namespace

bool has_slope(const Case& c, const Forecast& forecast) {
  const bool one_by_one =
      (c.protocol.microbatches > 1 || c.protocol.failure.kind != FailureKind::none) &&
      std::any_of(c.layers.begin(), c.layers.end(), [&](const LayerSpec& l) {
        return layer_of(l).reads_state && trains_in(l, c.protocol.train);
      });
  const bool changed = std::any_of(c.layers.begin(), c.layers.end(), [&](const LayerSpec& l) {
    return layer_of(l).changes_gradients(l, c.protocol.train);
  });
  return c.dtype == DType::float64 && c.data == DataKind::normal &&
         forecast.frozen_layers.empty() && !one_by_one && !changed;
}

double first_step_loss(const Case& c, const Record& record) {
  double sum = 0;
  for (const Observation& o : record.observations) {
    if (o.quantity != Quantity::loss || o.step != 0) continue;
    for_each_element(record, o,
                     [&](std::size_t, double loss) { sum += c.protocol.backwards * loss; });
  }
  return sum;
}

double magnitude_of(const Case& c, const Record& record) {
  double sum = 0;
  for (const Observation& o : record.observations) {
    const bool output = o.quantity == Quantity::output && o.index == 0;
    if (o.step != 0 || (o.quantity != Quantity::loss && !output)) continue;
    double largest = 0;
    for_each_element(record, o, [&](std::size_t, double value) {
      largest = std::max(largest, std::fabs(value));
    });
    sum += c.protocol.backwards * largest;
  }
  return sum;
}

double slope_by_gradients(const Case& c, const Record& plain) {
  double sum = 0;
  for (const Observation& o : plain.observations) {
    if (o.step != 0) continue;
    if (o.quantity == Quantity::parameter_gradient) {
      sum +=
          along(c, plain, o, direction_of_parameter(o.index), c.protocol.prior_gradients ? 1 : 0);
    } else if (o.quantity == Quantity::input_gradient) {
      sum += along(c, plain, o, direction_of_input(o.microbatch, o.index), 0);
    }
  }
  return sum;
}

Quotient quotient_of(const SlopeSamples& samples, const SlopeSample& s) {
  const double h = s.distance;
  const double far = (s.forward - s.backward) / (2 * h);
  const double near = (s.half_forward - s.half_backward) / h;
  // How far the difference quotient `near` can be from the slope of the loss F:
  // - Where F is smooth, central differences are off by F'''h^2/24 + O(h^4), and far - near is
  //   three times that.
  // - Where a kink of size a (ReLU, max pooling) lies at distance s < h, far is off by
  //   a (1 - s/h) / 2, which is half of the second difference quotient over h; likewise near.
  // - Rounding errors of the five losses enter the same three quotients.
  // They are measured, and allowed eightfold, for kinks and roundings that cancel in one of them (a
  // margin that was chosen, not derived). The last term is what 1024 roundings at the magnitude of
  // the outputs can do where the five losses happen to be rounded so that the quotients show
  // nothing: a cross entropy of 1e-6 is the difference of two numbers near 20, and comes in steps
  // of their rounding.
  const double middle = samples.middle;
  const double curved = (s.forward - 2 * middle + s.backward) / h;
  const double half_curved = (s.half_forward - 2 * middle + s.half_backward) / (h / 2);
  const double measured = std::fabs(curved) + std::fabs(half_curved) + std::fabs(far - near);
  return {near, 8 * measured + 1024 * 0x1p-52 * samples.magnitude / h};
}

bool agrees(const SlopeSamples& samples, const SlopeSample& sample) {
  const Quotient q = quotient_of(samples, sample);
  return !std::isfinite(q.bound) || std::fabs(samples.by_gradients - q.slope) <= q.bound;
}

}  // namespace rematch
