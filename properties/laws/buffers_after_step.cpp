#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "buffers-after-step";

std::optional<Violation> check(const Evidence& e) {
  return compare_values(e, Quantity::buffer, kName);
}

bool applies(const Evidence& e) { return !e.geometry.buffers.empty(); }

}  // namespace

extern const Law buffers_after_step_law;
const Law buffers_after_step_law{.name = kName,
                                 .statement =
                                     "Running statistics are updated once per forward: after every "
                                     "step they have the same bits as in the plain run.",
                                 .check = check,
                                 .reads = {Observable::buffers},
                                 .applies = applies,
                                 .compares_values = true};

}  // namespace rematch
