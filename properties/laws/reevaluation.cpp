#include "properties/laws/support.h"

namespace rematch {

extern const Law reevaluation_law;
const Law reevaluation_law{.name = "reevaluation",
                           .statement =
                               "On an input that neither has seen, the model trained with "
                               "checkpointing gives the same bits as the model trained without it.",
                           .harm = "The trained model gives other results when it is used.",
                           .topic = Topic::numbers,
                           .check =
                               [](const Evidence& e) {
                                 return compare_values(e, Quantity::reevaluation,
                                                       reevaluation_law.name);
                               },
                           .reads = {Observable::reevaluation},
                           .applies = [](const Evidence& e) { return e.c.protocol.reevaluate; },
                           .compares_values = true,
                           .is_sampled = true};

}  // namespace rematch
