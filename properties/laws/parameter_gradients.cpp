#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "parameter-gradients";

std::optional<Violation> check(const Evidence& e) {
  return compare_values(e, Quantity::parameter_gradient, kName);
}

bool applies(const Evidence& e) { return !e.geometry.parameters.empty(); }

}  // namespace

extern const Law parameter_gradients_law;
const Law parameter_gradients_law{
    .name = kName,
    .statement = "Every parameter gradient has the same bits as in the plain run.",
    .check = check,
    .reads = {Observable::parameter_gradients},
    .applies = applies,
    .compares_values = true};

}  // namespace rematch
