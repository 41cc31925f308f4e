#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "parameters-after-step";

std::optional<Violation> check(const Evidence& e) {
  return compare_values(e, Quantity::parameter, kName);
}

bool applies(const Evidence& e) { return !e.geometry.parameters.empty(); }

}  // namespace

extern const Law parameters_after_step_law;
const Law parameters_after_step_law{
    .name = kName,
    .statement =
        "After every optimizer step all parameters have the same bits as in the plain run.",
    .check = check,
    .reads = {Observable::parameters},
    .applies = applies,
    .compares_values = true};

}  // namespace rematch
