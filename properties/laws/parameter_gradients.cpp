#include "properties/laws/support.h"

namespace rematch {

extern const Law parameter_gradients_law;
const Law parameter_gradients_law{
    .name = "parameter-gradients",
    .statement = "Every parameter gradient has the same bits as in the plain run.",
    .harm = "The optimizer takes a step in the wrong direction.",
    .topic = Topic::numbers,
    .check =
        [](const Evidence& e) {
          return compare_values(e, Quantity::parameter_gradient, parameter_gradients_law.name);
        },
    .reads = {Observable::parameter_gradients},
    .applies = [](const Evidence& e) { return !e.geometry.parameters.empty(); },
    .compares_values = true};

}  // namespace rematch
