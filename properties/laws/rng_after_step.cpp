#include "properties/laws/support.h"

namespace rematch {

extern const Law rng_after_step_law;
const Law rng_after_step_law{
    .name = "rng-after-step",
    .statement = "After every step, all random streams are the same as in the plain run.",
    .harm = "All later random numbers differ, so the run cannot be reproduced or compared.",
    .topic = Topic::randomness,
    .check =
        [](const Evidence& e) {
          return compare_streams(e, Moment::after_step, rng_after_step_law.name);
        },
    .reads = {Observable::rng_state}};

}  // namespace rematch
