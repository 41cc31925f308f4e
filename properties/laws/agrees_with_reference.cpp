#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "properties/laws/support.h"
#include "properties/rounding/reference.h"

namespace rematch {
namespace {

constexpr std::string_view kAgreesWithReference = "agrees-with-reference";

Observable observable_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::output:
      return Observable::outputs;
    case Quantity::loss:
      return Observable::losses;
    case Quantity::input_gradient:
      return Observable::input_gradients;
    case Quantity::parameter_gradient:
      return Observable::parameter_gradients;
    case Quantity::parameter:
      return Observable::parameters;
    case Quantity::buffer:
      return Observable::buffers;
    case Quantity::reevaluation:
      return Observable::reevaluation;
  }
  return Observable::outputs;
}

/// Their distance, of the elements that have a bound.
double distance_of(std::span<const double> bounds, std::span<const double> expected,
                   std::vector<double> got) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(bounds[i])) got[i] = expected[i];
  }
  return distance(expected, got);
}

std::optional<Violation> check_agrees_with_reference(const Evidence& e) {
  const Reference& r = *e.reference;
  std::optional<Violation> violation;
  Finder plain(e.plain.observations);
  for (std::size_t i = 0; i < r.run.observations.size(); ++i) {
    const Observation& o = r.run.observations[i];
    if (!o.present || !e.observed.contains(observable_of(o.quantity))) continue;
    const Observation* const got = plain.find([&](const Observation& p) {
      return p.quantity == o.quantity && p.step == o.step && p.microbatch == o.microbatch &&
             p.index == o.index;
    });
    // Other laws judge values that are absent or not recorded.
    if (got == nullptr || !got->present) continue;
    const std::string place =
        place_of(o.step, o.microbatch) + ", " + value_name(e, o.quantity, o.index);
    if (!(got->shape == o.shape)) {
      if (violation) return violation;
      return Violation{kAgreesWithReference, place, to_string(o.shape), to_string(got->shape)};
    }
    const std::vector<double> values = elements_of(e.plain, *got);
    if (const auto m = misfit(r, i, e.plain, *got)) {
      if (!violation) {
        violation = {kAgreesWithReference, place + ", element " + std::to_string(m->element),
                     fmt::format("{:.9g} within {:.2g}", m->expected, m->bound),
                     fmt::format("{:.9g} in the plain run", m->got)};
      }
      const double far = distance_of(r.bounds[i], elements_of(r.run, o), values);
      violation->distance = std::max(violation->distance.value_or(0), far);
    }
    // From an overflow on nothing is certain: a zero times infinity, of the padding of a
    // convolution, say, is no number where it is computed, and zero where it is left out.
    if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
      break;
  }
  return violation;
}

/// Whether some number has a bound that tells it from zero.
bool applies_agrees_with_reference(const Evidence& e) {
  const Reference& r = *e.reference;
  for (std::size_t i = 0; i < r.run.observations.size(); ++i) {
    const Observation& o = r.run.observations[i];
    const std::vector<double> right = elements_of(r.run, o);
    for (std::size_t j = 0; o.present && j < right.size(); ++j) {
      if (r.bounds[i][j] < std::fabs(right[j])) return true;
    }
  }
  return false;
}

}  // namespace

extern const Law agrees_with_reference_law;
const Law agrees_with_reference_law{
    .name = kAgreesWithReference,
    .statement =
        "In a case without random layers, the plain run of a subject in another process differs "
        "from the reference engine's float64 run by no more than rounding explains.",
    .harm =
        "The framework computes something else than the model says, with and without checkpointing "
        "alike.",
    .topic = Topic::numbers,
    .check = check_agrees_with_reference,
    .reads = {},
    .extra_runs = {ExtraRun::reference},
    .applies = applies_agrees_with_reference};

}  // namespace rematch
