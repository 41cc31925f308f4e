#include <array>
#include <utility>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kRepeatable = "repeatable";

std::string error_of(const Record& r) {
  return r.error ? r.error->kind + ": " + r.error->message : "no error";
}

std::optional<Violation> compare(const Evidence& e, const Record& first, const Record& second,
                                 const std::string& run) {
  if (first.error.has_value() != second.error.has_value()) {
    return Violation{kRepeatable, "the end of the " + run, error_of(first), error_of(second)};
  }
  // Other laws judge what a failed run recorded before its end, and its message.
  if (first.error) return std::nullopt;
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
    const Evidence again{e.c, e.geometry, strict, e.observed, first, second};
    if (std::optional<Violation> violation = compare_values(again, q, kRepeatable)) {
      violation->place += ", in two equal " + run + "s";
      return violation;
    }
  }
  if (first.hash() != second.hash()) {
    return Violation{kRepeatable, "the whole record of the " + run, "equal hashes of two runs",
                     "different ones"};
  }
  return std::nullopt;
}

std::optional<Violation> check_repeatable(const Evidence& e) {
  if (auto v = compare(e, e.checkpointed, *e.repeat, "checkpointed run")) return v;
  if (e.plain_repeat == nullptr) return std::nullopt;
  return compare(e, e.plain, *e.plain_repeat, "plain run");
}

}  // namespace

extern const Law repeatable_law;
const Law repeatable_law{
    .name = kRepeatable,
    .statement =
        "A case that runs twice, on a device, in another process or in a fresh process, gives the "
        "same record, bit for bit.",
    .harm =
        "The same training run gives other numbers each time, and no bug in it can be narrowed "
        "down.",
    .topic = Topic::survival,
    .check = check_repeatable,
    .reads = {},
    .extra_runs = {ExtraRun::repeat},
    .judges_failures = true,
    .is_sampled = true};

}  // namespace rematch
