#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kAbsentGradients = "absent-gradients";

std::string text_of(const Observation* o) {
  if (o == nullptr) return std::string(kNotRecorded);
  return o->present ? "present" : "absent";
}

/// `forecast` is nullopt where only the plain run can tell.
std::optional<Violation> compare(const Observation* plain, const Observation* checkpointed,
                                 std::optional<bool> forecast, auto place) {
  if (plain != nullptr && checkpointed != nullptr && plain->present == checkpointed->present &&
      (!forecast || *forecast == plain->present)) {
    return std::nullopt;
  }
  std::string expected = text_of(plain);
  if (forecast) expected += *forecast ? " (forecast: present)" : " (forecast: absent)";
  return Violation{kAbsentGradients, place(), std::move(expected), text_of(checkpointed)};
}

std::optional<Violation> check_absent_gradients(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  Finder plain(e.plain.observations);
  Finder checkpointed(e.checkpointed.observations);
  const bool parameters = e.observed.contains(Observable::parameter_gradients);
  const int count = parameters ? static_cast<int>(e.geometry.parameters.size()) : 0;
  for (int step = 0; step < p.steps; ++step) {
    for (int index = 0; index < count; ++index) {
      const auto here = [&](const Observation& o) {
        return o.quantity == Quantity::parameter_gradient && o.step == step && o.index == index;
      };
      std::optional<bool> forecast;
      if (e.forecast.hooks[static_cast<std::size_t>(index)] > 0) forecast = true;
      if (!forecast && !p.prior_gradients) forecast = false;
      auto violation = compare(plain.find(here), checkpointed.find(here), forecast, [&] {
        return "step " + std::to_string(step) + ", gradient of " +
               parameter_name(e.c, e.geometry, index);
      });
      if (violation) return violation;
    }
  }
  if (!e.observed.contains(Observable::input_gradients)) return std::nullopt;
  return for_each_forward(p, [&](int step, int microbatch) {
    std::optional<Violation> violation;
    for (int input = 0; input < e.geometry.inputs && !violation; ++input) {
      const auto here = [&](const Observation& o) {
        return o.quantity == Quantity::input_gradient && o.step == step &&
               o.microbatch == microbatch && o.index == input;
      };
      violation = compare(plain.find(here), checkpointed.find(here), requires_grad(p, input), [&] {
        return place_of(step, microbatch) + ", " + input_gradient_name(input);
      });
    }
    return violation;
  });
}

}  // namespace

extern const Law absent_gradients_law;
const Law absent_gradients_law{
    .name = kAbsentGradients,
    .statement =
        "A gradient is absent (None, not zero) exactly where it is absent in the plain run, and "
        "where the forecast says so.",
    .harm =
        "The optimizer moves parameters that should stay, or skips parameters that should move.",
    .topic = Topic::gradient_flow,
    .check = check_absent_gradients,
    .reads = {Observable::absent_gradients}};

}  // namespace rematch
