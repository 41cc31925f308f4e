#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "input-gradients";

std::optional<Breach> check(const Evidence& e) {
  return compare_values(e, Quantity::input_gradient, kName);
}

}  // namespace

extern const Law input_gradients_law;
const Law input_gradients_law{
    kName, "The gradient of the model input has the same bits as in the plain run.", check};

}  // namespace rematch
