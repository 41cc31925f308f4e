#include "properties/laws/support.h"

namespace rematch {

extern const Law outputs_law;
const Law outputs_law{
    .name = "outputs",
    .statement = "Every forward returns the same bits as the plain run.",
    .harm = "The model predicts something else as soon as it is checkpointed.",
    .topic = Topic::numbers,
    .check =
        [](const Evidence& e) { return compare_values(e, Quantity::output, outputs_law.name); },
    .reads = {Observable::outputs},
    .compares_values = true};

}  // namespace rematch
