#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "outputs";

std::optional<Violation> check(const Evidence& e) {
  return compare_values(e, Quantity::output, kName);
}

}  // namespace

extern const Law outputs_law;
const Law outputs_law{.name = kName,
                      .statement = "Every forward returns the same bits as the plain run.",
                      .check = check,
                      .reads = {Observable::outputs},
                      .compares_values = true};

}  // namespace rematch
