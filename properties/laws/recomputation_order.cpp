#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {

extern const Law executions_law;

namespace {

constexpr std::string_view kRecomputationOrder = "recomputation-order";

std::optional<Violation> check_recomputation_order(const Evidence& e) {
  // Bytes and numbers of nodes are not compared here.
  const auto is_layer = [](const LiveReading& r) { return r.event == Event::layer; };
  const auto judge = [&](const ForecastEvent* wanted, const LiveReading* got,
                         std::size_t number) -> std::optional<Violation> {
    const auto place = [&](const LiveReading& r) {
      return place_of(e.c, r, "checkpointed run", number);
    };
    if (wanted == nullptr) {
      return Violation{kRecomputationOrder, place(*got), "no further layer run",
                       event_name(e.c, *got)};
    }
    if (got == nullptr) {
      return Violation{kRecomputationOrder, place(wanted->in_step()), "this layer run",
                       std::string(kNotRecorded)};
    }
    if (wanted->is_event_of(*got)) return std::nullopt;
    return Violation{kRecomputationOrder, place(wanted->in_step()), "this layer run",
                     place_of(got->step, got->microbatch) + ", " + event_name(e.c, *got)};
  };
  return for_each_event(e.forecast.live, e.checkpointed.live, e.c.protocol.steps, is_layer, judge);
}

// Further runs and missing ones are the business of `executions`.
bool applies_recomputation_order(const Evidence& e) {
  if (!e.forecast.saves_known) return false;
  return !e.observed.contains(Observable::executions) || !executions_law.check(e);
}

}  // namespace

extern const Law recomputation_order_law;
const Law recomputation_order_law{
    .name = kRecomputationOrder,
    .statement =
        "Layers run in the order of the forecast: a backward recomputes the last segment first, "
        "and the layers of each segment in forward order, each once.",
    .harm = "More is alive at once than planned, and layers see state in the wrong order.",
    .topic = Topic::recomputation,
    .check = check_recomputation_order,
    .reads = {Observable::execution_order},
    .applies = applies_recomputation_order};

}  // namespace rematch
