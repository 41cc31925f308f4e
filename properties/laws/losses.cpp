#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "losses";

std::optional<Violation> check(const Evidence& e) {
  return compare_values(e, Quantity::loss, kName);
}

}  // namespace

extern const Law losses_law;
const Law losses_law{.name = kName,
                     .statement = "Every loss has the same bits as in the plain run.",
                     .check = check,
                     .reads = {Observable::losses},
                     .compares_values = true};

}  // namespace rematch
