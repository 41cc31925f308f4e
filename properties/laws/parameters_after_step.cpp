#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kParametersAfterStep = "parameters-after-step";

std::optional<Violation> check_parameters_after_step(const Evidence& e) {
  return compare_values(e, Quantity::parameter, kParametersAfterStep);
}

bool applies_parameters_after_step(const Evidence& e) { return !e.geometry.parameters.empty(); }

}  // namespace

extern const Law parameters_after_step_law;
const Law parameters_after_step_law{
    .name = kParametersAfterStep,
    .statement =
        "After every optimizer step, all parameters have the same bits as in the plain run.",
    .harm = "The model that is trained is another one.",
    .topic = Topic::numbers,
    .check = check_parameters_after_step,
    .reads = {Observable::parameters},
    .applies = applies_parameters_after_step,
    .compares_values = true};

}  // namespace rematch
