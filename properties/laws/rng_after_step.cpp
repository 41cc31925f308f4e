#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kRngAfterStep = "rng-after-step";

std::optional<Violation> check_rng_after_step(const Evidence& e) {
  return compare_streams(e, Moment::after_step, kRngAfterStep);
}

}  // namespace

extern const Law rng_after_step_law;
const Law rng_after_step_law{
    .name = kRngAfterStep,
    .statement = "After every step, all random streams are the same as in the plain run.",
    .harm = "All later random numbers differ, so the run cannot be reproduced or compared.",
    .topic = Topic::randomness,
    .check = check_rng_after_step,
    .reads = {Observable::rng_state}};

}  // namespace rematch
