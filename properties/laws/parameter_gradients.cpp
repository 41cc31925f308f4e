#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kParameterGradients = "parameter-gradients";

std::optional<Violation> check_parameter_gradients(const Evidence& e) {
  return compare_values(e, Quantity::parameter_gradient, kParameterGradients);
}

bool applies_parameter_gradients(const Evidence& e) { return !e.geometry.parameters.empty(); }

}  // namespace

extern const Law parameter_gradients_law;
const Law parameter_gradients_law{
    .name = kParameterGradients,
    .statement = "Every parameter gradient has the same bits as in the plain run.",
    .harm = "The optimizer takes a step in the wrong direction.",
    .topic = Topic::numbers,
    .check = check_parameter_gradients,
    .reads = {Observable::parameter_gradients},
    .applies = applies_parameter_gradients,
    .compares_values = true};

}  // namespace rematch
