#include <fmt/format.h>

#include <algorithm>

#include "properties/laws/slope.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kDerivatives = "derivatives";

// One distance may mislead: rounding errors that cancel by chance, a kink in a bad place. A wrong
// gradient disagrees at every distance.
std::optional<Violation> check_derivatives(const Evidence& e) {
  const SlopeSamples& samples = *e.slope;
  const auto agreeing = [&](const SlopeSample& s) { return agrees(samples, s); };
  if (std::any_of(samples.around.begin(), samples.around.end(), agreeing)) return std::nullopt;
  const Quotient q = quotient_of(samples, samples.around.front());
  return Violation{
      kDerivatives, "step 0, the slope of the loss along a random direction",
      fmt::format("{:.10g} within {:.2g}, by finite differences", q.slope, q.bound),
      fmt::format("{:.10g}, the product of gradients and direction", samples.by_gradients)};
}

}  // namespace

extern const Law derivatives_law;
const Law derivatives_law{
    .name = kDerivatives,
    .statement = "In float64, the gradients agree with a difference quotient of the loss.",
    .harm = "Gradients are wrong with and without checkpointing alike.",
    .topic = Topic::numbers,
    .check = check_derivatives,
    .reads = {Observable::displacement, Observable::outputs, Observable::losses,
              Observable::input_gradients, Observable::parameter_gradients},
    .extra_runs = {ExtraRun::slope},
    .applies = [](const Evidence& e) { return !e.slope->around.empty(); }};

}  // namespace rematch
