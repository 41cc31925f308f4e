#include <algorithm>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kExecutions = "executions";

std::optional<Violation> compare(const Evidence& e, const Record& record, const char* run,
                                 bool checkpointed) {
  const auto layers = static_cast<int>(e.c.layers.size());
  const std::size_t expected_entries = static_cast<std::size_t>(e.c.protocol.steps) *
                                       static_cast<std::size_t>(e.c.protocol.microbatches) *
                                       e.c.layers.size();
  Finder counts(record.executions);
  auto violation =
      for_each_forward(e.c.protocol, [&](int step, int microbatch) -> std::optional<Violation> {
        for (int layer = 0; layer < layers; ++layer) {
          const ExecutionCount* entry = counts.find([&](const ExecutionCount& x) {
            return x.step == step && x.microbatch == microbatch && x.layer == layer;
          });
          const int expected =
              checkpointed ? e.forecast.executions[static_cast<std::size_t>(layer)] : 1;
          const int expected_computed =
              (checkpointed ? e.forecast.computations
                            : e.forecast.plain_computations)[static_cast<std::size_t>(layer)];
          if (entry == nullptr || entry->count != expected) {
            return Violation{
                kExecutions, place_of(e.c, step, microbatch, layer) + ", " + run,
                std::to_string(expected),
                entry != nullptr ? std::to_string(entry->count) : std::string(kNotRecorded)};
          }
          if (entry->computed == expected_computed ||
              !e.observed.contains(Observable::computations)) {
            continue;
          }
          return Violation{kExecutions,
                           place_of(e.c, step, microbatch, layer) + ", computations of the " + run,
                           std::to_string(expected_computed), std::to_string(entry->computed)};
        }
        return std::nullopt;
      });
  if (violation || record.executions.size() == expected_entries) return violation;
  return Violation{kExecutions, std::string("entries of the ") + run,
                   std::to_string(expected_entries), std::to_string(record.executions.size())};
}

std::optional<Violation> check_executions(const Evidence& e) {
  if (auto violation = compare(e, e.checkpointed, "checkpointed run", true)) return violation;
  return compare(e, e.plain, "plain run", false);
}

}  // namespace

extern const Law executions_law;
const Law executions_law{
    .name = kExecutions,
    .statement =
        "Every layer runs as often as the forecast says: once for the forward and once for each "
        "recomputation that reaches it. It computes each time, unless a policy kept its results.",
    .harm =
        "Training is slower than promised, or a recomputation that the memory plan counts on does "
        "not happen.",
    .topic = Topic::recomputation,
    .check = check_executions,
    .reads = {Observable::executions},
    .applies = [](const Evidence& e) { return e.forecast.saves_known; }};

}  // namespace rematch
