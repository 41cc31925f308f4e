#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kOutputs = "outputs";

std::optional<Violation> check_outputs(const Evidence& e) {
  return compare_values(e, Quantity::output, kOutputs);
}

}  // namespace

extern const Law outputs_law;
const Law outputs_law{.name = kOutputs,
                      .statement = "Every forward returns the same bits as the plain run.",
                      .harm = "The model predicts something else as soon as it is checkpointed.",
                      .topic = Topic::numbers,
                      .check = check_outputs,
                      .reads = {Observable::outputs},
                      .compares_values = true};

}  // namespace rematch
