#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "reevaluation";

std::optional<Violation> check(const Evidence& e) {
  return compare_values(e, Quantity::reevaluation, kName);
}

bool applies(const Evidence& e) { return e.c.protocol.reevaluate; }

}  // namespace

extern const Law reevaluation_law;
const Law reevaluation_law{.name = kName,
                           .statement =
                               "On an input that neither has seen, the model trained with "
                               "checkpointing gives the same bits as the one trained without.",
                           .check = check,
                           .reads = {Observable::reevaluation},
                           .applies = applies,
                           .compares_values = true};

}  // namespace rematch
