#include "properties/laws/support.h"

namespace rematch {

extern const Law losses_law;
const Law losses_law{
    .name = "losses",
    .statement = "Every loss has the same bits as in the plain run.",
    .harm = "The loss that is reported and minimised is wrong.",
    .topic = Topic::numbers,
    .check = [](const Evidence& e) { return compare_values(e, Quantity::loss, losses_law.name); },
    .reads = {Observable::losses},
    .compares_values = true};

}  // namespace rematch
