#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "outputs";

std::optional<Breach> check(const Evidence& e) {
  return compare_values(e, Quantity::output, kName);
}

}  // namespace

extern const Law outputs_law;
const Law outputs_law{kName, "Every forward returns the same bits as the plain run.", check};

}  // namespace rematch
