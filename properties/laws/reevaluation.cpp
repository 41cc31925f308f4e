#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "reevaluation";

std::optional<Breach> check(const Evidence& e) {
  return compare_values(e, Quantity::reevaluation, kName);
}

}  // namespace

extern const Law reevaluation_law;
const Law reevaluation_law{
    kName,
    "The trained model gives the same bits as the plainly trained one on an input that "
    "neither has seen.",
    check};

}  // namespace rematch
