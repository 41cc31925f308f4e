#include <array>
#include <utility>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "repeatable";

std::optional<Violation> check(const Evidence& e) {
  constexpr std::array kCompared{
      std::pair{Observable::outputs, Quantity::output},
      std::pair{Observable::losses, Quantity::loss},
      std::pair{Observable::input_gradients, Quantity::input_gradient},
      std::pair{Observable::parameter_gradients, Quantity::parameter_gradient},
      std::pair{Observable::parameters, Quantity::parameter},
      std::pair{Observable::buffers, Quantity::buffer},
      std::pair{Observable::reevaluation, Quantity::reevaluation}};
  for (const auto& [observable, q] : kCompared) {
    if (!e.observed.contains(observable)) continue;
    if (q == Quantity::reevaluation && !e.c.protocol.reevaluate) continue;
    // The same comparison as between plain and checkpointed, with nothing excused.
    Forecast strict = e.forecast;
    strict.values_comparable = true;
    strict.exact_inputs = true;
    strict.exact_until_step = e.c.protocol.steps;
    strict.exact_parameters.assign(strict.exact_parameters.size(), true);
    const Evidence again{e.c, e.geometry, strict, e.observed, e.checkpointed, *e.repeat};
    if (std::optional<Violation> violation = compare_values(again, q, kName)) return violation;
  }
  if (e.checkpointed.hash() != e.repeat->hash()) {
    return Violation{kName, "the whole record", "equal hashes of two runs", "different ones"};
  }
  return std::nullopt;
}

}  // namespace

extern const Law repeatable_law;
const Law repeatable_law{
    .name = kName,
    .statement =
        "A checkpointed case that runs twice, on a device or in a fresh process, gives the same "
        "record, bit for bit.",
    .check = check,
    .reads = {},
    .extras = {Extra::repeat}};

}  // namespace rematch
