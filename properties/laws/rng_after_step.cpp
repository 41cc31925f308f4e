#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "rng-after-step";

std::optional<Violation> check(const Evidence& e) {
  return compare_streams(e, Moment::after_step, kName);
}

}  // namespace

extern const Law rng_after_step_law;
const Law rng_after_step_law{
    .name = kName,
    .statement = "After every step all random streams are as in the plain run.",
    .check = check,
    .reads = {Observable::rng_state}};

}  // namespace rematch
