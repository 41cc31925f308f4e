#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kBuffersAfterStep = "buffers-after-step";

std::optional<Violation> check_buffers_after_step(const Evidence& e) {
  return compare_values(e, Quantity::buffer, kBuffersAfterStep);
}

bool applies_buffers_after_step(const Evidence& e) { return !e.geometry.buffers.empty(); }

}  // namespace

extern const Law buffers_after_step_law;
const Law buffers_after_step_law{.name = kBuffersAfterStep,
                                 .statement =
                                     "Each forward updates the running statistics once: after "
                                     "every step they have the same bits as in the plain run.",
                                 .harm =
                                     "Running statistics of BatchNorm and similar layers are "
                                     "wrong, and so is the model in eval mode.",
                                 .topic = Topic::state,
                                 .check = check_buffers_after_step,
                                 .reads = {Observable::buffers},
                                 .applies = applies_buffers_after_step,
                                 .compares_values = true};

}  // namespace rematch
