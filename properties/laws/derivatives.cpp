#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "properties/laws/slope.h"
#include "properties/laws/support.h"
#include "properties/subjects/direction.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "derivatives";

/// The product of a gradient of the plain run, less what it began with, and its direction.
double along(const Evidence& e, const Observation& gradient, std::uint64_t array, double prior) {
  if (!gradient.present) return 0;
  const std::vector<double> d = direction(e.c.seed, array, gradient.shape.elements());
  const std::byte* at = e.plain.bytes_of(gradient).data();
  double sum = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    double value = 0;
    std::memcpy(&value, at + i * sizeof(value), sizeof(value));
    sum += (value - prior) * d[i];
  }
  return sum;
}

/// The slope that the recorded gradients of the first step promise.
double promised_slope(const Evidence& e) {
  double sum = 0;
  for (const Observation& o : e.plain.observations) {
    if (o.step != 0) continue;
    if (o.quantity == Quantity::parameter_gradient) {
      sum += along(e, o, direction_of_parameter(o.index), e.c.protocol.prior_gradients ? 1 : 0);
    } else if (o.quantity == Quantity::input_gradient) {
      sum += along(e, o, direction_of_input(o.pass), 0);
    }
  }
  return sum;
}

std::optional<Breach> check(const Evidence& e) {
  if (e.slope == nullptr) return std::nullopt;
  const SlopeSamples& f = *e.slope;
  const double h = kDisplacement;
  const double far = (f.forward - f.backward) / (2 * h);
  const double near = (f.half_forward - f.half_backward) / h;
  // How far the difference quotient `near` can be from the slope of the loss F:
  // - Where F is smooth, central differences are off by F'''h^2/24 + O(h^4), and far - near is
  //   three times that.
  // - Where a kink of size a (ReLU, max pooling) lies at distance s < h, far is off by
  //   a (1 - s/h) / 2, which is half of the second difference quotient over h; likewise near.
  // - Rounding errors of the five losses enter the same three quotients.
  // They are measured, and allowed eightfold, for kinks and roundings that cancel in one of them
  // (a margin that was chosen, not derived: a million cases of the wide mix stay within it);
  // the last term is what 1024 roundings at the loss's own magnitude can do when all five losses
  // are rounded alike and the quotients show nothing.
  const double curved = (f.forward - 2 * f.middle + f.backward) / h;
  const double half_curved = (f.half_forward - 2 * f.middle + f.half_backward) / (h / 2);
  const double bound = 8 * (std::fabs(curved) + std::fabs(half_curved) + std::fabs(far - near)) +
                       1024 * 0x1p-52 * f.magnitude / h;
  const double promised = promised_slope(e);
  if (!std::isfinite(bound) || std::fabs(promised - near) <= bound) return std::nullopt;
  return Breach{kName, "step 0, the slope of the loss along a random direction",
                fmt::format("{:.10g} within {:.2g}, by finite differences", near, bound),
                fmt::format("{:.10g}, the product of gradients and direction", promised)};
}

}  // namespace

extern const Law derivatives_law;
const Law derivatives_law{
    kName, "In float64, the gradients are the slope of the loss: a difference quotient agrees.",
    check, Needs::slope};

}  // namespace rematch
