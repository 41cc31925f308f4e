#include "properties/laws/support.h"

namespace rematch {

extern const Law parameters_after_step_law;
const Law parameters_after_step_law{
    .name = "parameters-after-step",
    .statement =
        "After every optimizer step, all parameters have the same bits as in the plain run.",
    .harm = "The model that is trained is another one.",
    .topic = Topic::numbers,
    .check =
        [](const Evidence& e) {
          return compare_values(e, Quantity::parameter, parameters_after_step_law.name);
        },
    .reads = {Observable::parameters},
    .applies = [](const Evidence& e) { return !e.geometry.parameters.empty(); },
    .compares_values = true};

}  // namespace rematch
