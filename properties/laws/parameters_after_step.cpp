#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "parameters-after-step";

std::optional<Breach> check(const Evidence& e) {
  return compare_values(e, Quantity::parameter, kName);
}

}  // namespace

extern const Law parameters_after_step_law;
const Law parameters_after_step_law{
    kName, "After every optimizer step all parameters have the same bits as in the plain run.",
    check};

}  // namespace rematch
