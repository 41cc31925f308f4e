#include "properties/laws/support.h"

namespace rematch {

extern const Law buffers_after_step_law;
const Law buffers_after_step_law{
    .name = "buffers-after-step",
    .statement =
        "Each forward updates the running statistics once: after "
        "every step they have the same bits as in the plain run.",
    .harm =
        "Running statistics of BatchNorm and similar layers are "
        "wrong, and so is the model in eval mode.",
    .topic = Topic::state,
    .check =
        [](const Evidence& e) {
          return compare_values(e, Quantity::buffer, buffers_after_step_law.name);
        },
    .reads = {Observable::buffers},
    .applies = [](const Evidence& e) { return !e.geometry.buffers.empty(); },
    .compares_values = true};

}  // namespace rematch
