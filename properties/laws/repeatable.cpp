#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "repeatable";

std::optional<Breach> check(const Evidence& e) {
  if (e.repeat == nullptr) return std::nullopt;
  for (const Quantity q :
       {Quantity::output, Quantity::loss, Quantity::input_gradient, Quantity::parameter_gradient,
        Quantity::parameter, Quantity::buffer, Quantity::reevaluation}) {
    // The same comparison as between plain and checkpointed, with nothing excused.
    Forecast strict = e.forecast;
    strict.values_comparable = true;
    strict.exact_inputs = true;
    strict.exact_until_step = e.c.protocol.steps;
    strict.exact_parameters.assign(strict.exact_parameters.size(), true);
    const Evidence again{e.c, e.geometry, strict, e.checkpointed, *e.repeat};
    if (std::optional<Breach> breach = compare_values(again, q, kName)) return breach;
  }
  if (e.checkpointed.hash() != e.repeat->hash()) {
    return Breach{kName, "the whole record", "equal hashes of two runs", "different ones"};
  }
  return std::nullopt;
}

}  // namespace

extern const Law repeatable_law;
const Law repeatable_law{
    kName, "A checkpointed case that is run twice on a device gives the same record, bit for bit.",
    check, Needs::repeat};

}  // namespace rematch
