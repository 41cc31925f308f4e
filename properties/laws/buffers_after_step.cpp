#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "buffers-after-step";

std::optional<Breach> check(const Evidence& e) {
  return compare_values(e, Quantity::buffer, kName);
}

}  // namespace

extern const Law buffers_after_step_law;
const Law buffers_after_step_law{
    kName,
    "Running statistics are updated once a forward: after every step they have the same "
    "bits as in the plain run.",
    check};

}  // namespace rematch
