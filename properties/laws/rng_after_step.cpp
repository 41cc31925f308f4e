#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "rng-after-step";

std::optional<Breach> check(const Evidence& e) {
  return compare_streams(e, Moment::after_step, kName);
}

}  // namespace

extern const Law rng_after_step_law;
const Law rng_after_step_law{
    kName, "After every step all random streams are where the plain run has them.", check};

}  // namespace rematch
