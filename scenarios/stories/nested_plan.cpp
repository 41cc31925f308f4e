#include <algorithm>

#include "properties/forecast/forecast.h"
#include "properties/plans/optimum.h"
#include "properties/plans/revolve.h"
#include "scenarios/support/judging.h"

namespace rematch::scenarios::nested_plan_story {
namespace {

constexpr int kLayers = 16;

Case chain() {
  Case c = case_from_json(R"({"format": 1, "seed": 16, "input": [2, 3],
    "layers": [{"kind": "tanh"}], "protocol": {"input_requires_grad": true}})");
  c.layers.resize(kLayers, c.layers.front());
  return c;
}

struct Cost {
  std::int64_t peak = 0;
  int recomputed = 0;
};

Cost cost_of(const Case& c, bool checkpointed) {
  const Record record = record_of(c, checkpointed);
  Cost cost;
  for (const LiveReading& r : record.live) cost.peak = std::max(cost.peak, r.peak);
  for (const ExecutionCount& e : record.executions) cost.recomputed += e.count - 1;
  return cost;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  const Cost plain = cost_of(chain(), false);
  const Revolve revolve(kLayers, kLayers);
  Table& table = report.table(
      "16 tanh layers on 6 numbers (24 B), all bytes of a step",
      {"slots", "layers run again", "peak, non-reentrant", "peak, reentrant", "peak, plain"});
  bool counts_hold = true, bytes_hold = true;
  Cost reentrant_without_slots;
  for (const int slots : {0, 1, 2, 4, 6}) {
    const auto planned = [&](Variant variant) {
      Case c = chain();
      c.plan.segments = revolve.plan<SegmentSpec>(
          0, kLayers, slots, [&](int begin, int end, std::vector<SegmentSpec> nested) {
            SegmentSpec s{begin, end, {}, std::move(nested)};
            s.choice.variant = variant;
            return s;
          });
      return cost_of(c, true);
    };
    const Cost by_hooks = planned(Variant::non_reentrant);
    const Cost by_function = planned(Variant::reentrant);
    if (slots == 0) reentrant_without_slots = by_function;
    counts_hold &= by_hooks.recomputed == revolve.steps(kLayers, slots);
    bytes_hold &= by_hooks.peak == 104 + 24 * slots;
    table.row({slots, by_hooks.recomputed, by_hooks.peak, by_function.peak, plain.peak});
  }
  report.claim(counts_hold,
               "Non-reentrant segments run exactly as many layers again as the recursion says.");
  report.claim(bytes_hold, "Their peak is 104 B, and 24 B, one value, more for each slot.");
  report.claim(reentrant_without_slots.peak > plain.peak,
               "The same plan without slots takes {} B with reentrant segments, {} B without any "
               "checkpoint. A reentrant backward ends when the backward of all that it recomputed "
               "has, and each level keeps the inputs that it detached until then.",
               reentrant_without_slots.peak, plain.peak);
  const Frontier best = frontier_of(chain());
  const auto within = std::find_if(best.plans.begin(), best.plans.end(), [](const BestPlan& p) {
    return p.promise.peak_bytes <= 104 + 24 * 6;
  });
  const bool is_cheaper =
      within != best.plans.end() && within->promise.recomputations < revolve.steps(kLayers, 6);
  report.claim(is_cheaper,
               "The recursion is not the best plan here: it counts values, and a tanh saves its "
               "output, which is the next one's input. Within the bytes of 6 slots the best plan "
               "runs {} layers again, the recursion {}.",
               is_cheaper ? within->promise.recomputations : 0, revolve.steps(kLayers, 6));
}

}  // namespace rematch::scenarios::nested_plan_story
