#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kLosses = "losses";

std::optional<Violation> check_losses(const Evidence& e) {
  return compare_values(e, Quantity::loss, kLosses);
}

}  // namespace

extern const Law losses_law;
const Law losses_law{.name = kLosses,
                     .statement = "Every loss has the same bits as in the plain run.",
                     .harm = "The loss that is reported and minimised is wrong.",
                     .topic = Topic::numbers,
                     .check = check_losses,
                     .reads = {Observable::losses},
                     .compares_values = true};

}  // namespace rematch
