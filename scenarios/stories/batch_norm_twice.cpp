#include <fmt/format.h>

#include <cmath>

#include "scenarios/support/judging.h"

namespace rematch::scenarios::batch_norm_twice_story {
namespace {

/// A plan of `depth` checkpoints in one another around the normalisation.
Case nested(int depth) {
  Case c = case_from_json(R"({"format": 1, "seed": 96136, "input": [32, 8], "layers": [
    {"kind": "linear", "features": 8}, {"kind": "batch_norm"}, {"kind": "relu"},
    {"kind": "linear", "features": 4}],
    "protocol": {"steps": 1, "reevaluate": true}})");
  SegmentSpec segment{1, 3, {}, {}};
  segment.choice.variant = Variant::reentrant;
  for (int i = 1; i < depth; ++i) {
    SegmentSpec outer{1, 3, segment.choice, {segment}};
    segment = outer;
  }
  if (depth > 0) c.plan.segments.push_back(segment);
  return c;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  // A recomputation that layers cannot tell from a forward.
  EngineSubject wrong(find_fault("S1")->make);
  tell_case(nested(1), report);
  report.say(
      "In training a batch normalisation moves its running statistics a tenth of the way to the "
      "batch's. A recomputation that it cannot tell from a forward moves them again.");
  // From its start at 0, k updates with momentum 0.1 bring the running mean to (1 - 0.9^k) of the
  // batch's mean, which the plain run's one update shows.
  const double once = values_of(record_of(nested(1), false), Quantity::buffer)[0];
  Table& table = report.table("Running mean of channel 0 after one step",
                              {"checkpoints around it", "plain", "engine", "unmarked recomputation",
                               "updates that this amounts to"});
  bool counts = true;
  for (const int depth : {1, 2, 3}) {
    const double marked = values_of(record_of(nested(depth), true), Quantity::buffer)[0];
    const double unmarked = values_of(record_of(nested(depth), wrong), Quantity::buffer)[0];
    const double updates = std::log(1 - unmarked / once * 0.1) / std::log(0.9);
    table.row("{} | {:.6f} | {:.6f} | {:.6f} | {:.3f}", depth, once, marked, unmarked, updates);
    counts &= marked == once && std::fabs(updates - (depth + 1)) < 0.01;
  }
  report.claim(
      counts,
      "Nested d deep, reentrant checkpoints run the layer d + 1 times, so an unmarked "
      "recomputation updates the statistics d + 1 times. A momentum chosen so that two updates "
      "amount to one (pytorch-pfn-extras, pull request 117) is right for d = 1 only.");
  const Case c = nested(1);
  const Record plain = record_of(c, false);
  const Record broken = record_of(c, wrong);
  report.claim(
      are_same(plain, broken, {Quantity::output, Quantity::loss, Quantity::parameter_gradient}) &&
          !are_same(plain, broken, {Quantity::reevaluation}),
      "Outputs, loss and all gradients of the step are the plain run's, for in training the "
      "batch's own statistics are used. What differs is what the model says in evaluation "
      "afterwards.");
  claim_law_finds(c, wrong, "the second update", "buffers-after-step", report);
}

}  // namespace rematch::scenarios::batch_norm_twice_story
