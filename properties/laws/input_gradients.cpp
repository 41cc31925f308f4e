#include "properties/laws/support.h"

namespace rematch {

extern const Law input_gradients_law;
const Law input_gradients_law{
    .name = "input-gradients",
    .statement = "The gradient of the model input has the same bits as in the plain run.",
    .harm = "Whatever comes before the model is trained on wrong gradients.",
    .topic = Topic::numbers,
    .check =
        [](const Evidence& e) {
          return compare_values(e, Quantity::input_gradient, input_gradients_law.name);
        },
    .reads = {Observable::input_gradients},
    .applies = [](const Evidence& e) { return e.c.protocol.input_requires_grad; },
    .compares_values = true};

}  // namespace rematch
