#include <algorithm>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kLastSegment = "last-segment";

std::optional<Violation> check_last_segment(const Evidence& e) {
  // All segments but the last have floor(n / k) layers; the last one takes the remainder.
  const int layers = static_cast<int>(e.c.layers.size());
  const int segments = e.c.plan.sequential->segments;
  const int first = (segments - 1) * (layers / segments);
  for (const ExecutionCount& x : e.checkpointed.executions) {
    if (x.layer < first || x.layer >= layers || x.count == 1) continue;
    return Violation{kLastSegment, place_of(e.c, x.step, x.microbatch, x.layer) + ", executions",
                     "1", std::to_string(x.count)};
  }
  for (const Draw& d : e.checkpointed.draws) {
    if (d.layer < first || d.layer >= layers || d.execution == 0) continue;
    return Violation{kLastSegment, place_of(e.c, d.step, d.microbatch, d.layer),
                     "no draw in a recomputation",
                     "a draw in execution " + std::to_string(d.execution)};
  }
  // Where the segment before it is recomputed, the border lies where the formula says.
  if (first == 0) return std::nullopt;
  const auto recomputations_before = [&](const std::vector<int>& executions) {
    return *std::max_element(executions.begin(), executions.begin() + first) > 1;
  };
  if (!recomputations_before(e.forecast.executions)) return std::nullopt;
  const bool any =
      std::any_of(e.checkpointed.executions.begin(), e.checkpointed.executions.end(),
                  [&](const ExecutionCount& x) { return x.layer < first && x.count > 1; });
  if (any) return std::nullopt;
  Violation never{kLastSegment, "layers before " + std::to_string(first), "recomputed",
                  "never recomputed"};
  for (int layer = 0; layer < first; ++layer) {
    if (e.forecast.executions[static_cast<std::size_t>(layer)] > 1)
      never.sites.push_back({-1, -1, layer});
  }
  return never;
}

}  // namespace

extern const Law last_segment_law;
const Law last_segment_law{
    .name = kLastSegment,
    .statement =
        "The last segment of a sequential plan (floor(n / k) layers plus the remainder) is stored: "
        "it runs once and is never recomputed.",
    .harm = "Training is slower than promised: the last segment is computed twice.",
    .topic = Topic::recomputation,
    .check = check_last_segment,
    .reads = {Observable::executions},
    .applies = [](const Evidence& e) {
      return e.c.plan.sequential && e.c.plan.sequential->last_stored;
    }};

}  // namespace rematch
