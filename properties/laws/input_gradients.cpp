#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kInputGradients = "input-gradients";

std::optional<Violation> check_input_gradients(const Evidence& e) {
  return compare_values(e, Quantity::input_gradient, kInputGradients);
}

bool applies_input_gradients(const Evidence& e) { return e.c.protocol.input_requires_grad; }

}  // namespace

extern const Law input_gradients_law;
const Law input_gradients_law{
    .name = kInputGradients,
    .statement = "The gradient of the model input has the same bits as in the plain run.",
    .harm = "Whatever comes before the model is trained on wrong gradients.",
    .topic = Topic::numbers,
    .check = check_input_gradients,
    .reads = {Observable::input_gradients},
    .applies = applies_input_gradients,
    .compares_values = true};

}  // namespace rematch
