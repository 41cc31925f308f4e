#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "input-gradients";

std::optional<Violation> check(const Evidence& e) {
  return compare_values(e, Quantity::input_gradient, kName);
}

bool applies(const Evidence& e) { return e.c.protocol.input_requires_grad; }

}  // namespace

extern const Law input_gradients_law;
const Law input_gradients_law{
    .name = kName,
    .statement = "The gradient of the model input has the same bits as in the plain run.",
    .check = check,
    .reads = {Observable::input_gradients},
    .applies = applies,
    .compares_values = true};

}  // namespace rematch
