#include <algorithm>

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

/// Revolve's plan without slots: only the input is stored, and that of each layer is recomputed.
Case nested(Variant variant) {
  Case c = chain();
  for (int end = 1; end < kLayers; ++end) {
    SegmentSpec around{0, end, {}, std::move(c.plan.segments)};
    around.choice.variant = variant;
    c.plan.segments = {std::move(around)};
  }
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
  const Cost by_hooks = cost_of(nested(Variant::non_reentrant), true);
  const Cost by_function = cost_of(nested(Variant::reentrant), true);
  Table& table = report.table("16 tanh layers on 6 numbers (24 B), all bytes of a step",
                              {"plan", "layers run again", "peak"});
  table.row({"plain", plain.recomputed, plain.peak});
  table.row({"nested 15 deep, non-reentrant", by_hooks.recomputed, by_hooks.peak});
  table.row({"nested 15 deep, reentrant", by_function.recomputed, by_function.peak});
  report.claim(by_hooks.recomputed == kLayers * (kLayers - 1) / 2 &&
                   by_function.recomputed == by_hooks.recomputed,
               "Both run as many layers again as the recursion says: n (n - 1) / 2, {} here.",
               by_hooks.recomputed);
  report.claim(by_hooks.peak < plain.peak / 4,
               "Non-reentrant segments need {} B, a plain step {} B.", by_hooks.peak, plain.peak);
  report.claim(by_function.peak > plain.peak,
               "The same plan takes {} B with reentrant segments, more than without any "
               "checkpoint. A reentrant backward ends when the backward of all that it recomputed "
               "has, and each level keeps the inputs that it detached until then.",
               by_function.peak);
}

}  // namespace rematch::scenarios::nested_plan_story
