#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kReevaluation = "reevaluation";

std::optional<Violation> check_reevaluation(const Evidence& e) {
  return compare_values(e, Quantity::reevaluation, kReevaluation);
}

bool applies_reevaluation(const Evidence& e) { return e.c.protocol.reevaluate; }

}  // namespace

extern const Law reevaluation_law;
const Law reevaluation_law{.name = kReevaluation,
                           .statement =
                               "On an input that neither has seen, the model trained with "
                               "checkpointing gives the same bits as the model trained without it.",
                           .harm = "The trained model gives other results when it is used.",
                           .topic = Topic::numbers,
                           .check = check_reevaluation,
                           .reads = {Observable::reevaluation},
                           .applies = applies_reevaluation,
                           .compares_values = true,
                           .is_sampled = true};

}  // namespace rematch
