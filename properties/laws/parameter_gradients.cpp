#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "parameter-gradients";

std::optional<Breach> check(const Evidence& e) {
  return compare_values(e, Quantity::parameter_gradient, kName);
}

}  // namespace

extern const Law parameter_gradients_law;
const Law parameter_gradients_law{
    kName, "Every parameter gradient has the same bits as in the plain run.", check};

}  // namespace rematch
