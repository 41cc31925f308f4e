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

void run(const Options& /*options*/, Report& report) {
  // A recomputation that layers cannot tell from a forward.
  EngineSubject wrong(find_fault("S1")->make);
  EngineSubject right;
  tell_case(nested(1), report);
  report.say(
      "In training a batch normalisation moves its running statistics a tenth of the way to the "
      "batch's. A recomputation that it cannot tell from a forward moves them again.");
  // From its start at 0, k updates with momentum 0.1 bring the running mean to (1 - 0.9^k) of the
  // batch's mean, which the plain run's one update shows.
  const double once = values_of(record_of(nested(1), right, false), Quantity::buffer)[0];
  Table& table = report.table("Running mean of channel 0 after one step",
                              {"checkpoints around it", "plain", "engine", "unmarked recomputation",
                               "updates that this amounts to"});
  bool counts = true;
  for (const int depth : {1, 2, 3}) {
    const double marked = values_of(record_of(nested(depth), right, true), Quantity::buffer)[0];
    const double unmarked = values_of(record_of(nested(depth), wrong, true), Quantity::buffer)[0];
    const double updates = std::log(1 - unmarked / once * 0.1) / std::log(0.9);
    table.row({std::to_string(depth), fmt::format("{:.6f}", once), fmt::format("{:.6f}", marked),
               fmt::format("{:.6f}", unmarked), fmt::format("{:.3f}", updates)});
    counts = counts && marked == once && std::fabs(updates - (depth + 1)) < 0.01;
  }
  report.claim(
      counts,
      "Nested d deep, reentrant checkpoints run the layer d + 1 times, so an unmarked "
      "recomputation updates the statistics d + 1 times. A momentum chosen so that two updates "
      "amount to one (pytorch-pfn-extras, pull request 117) is right for d = 1 only.");
  const Case c = nested(1);
  const Record plain = record_of(c, right, false);
  const Record broken = record_of(c, wrong, true);
  report.claim(
      values_of(plain, Quantity::output) == values_of(broken, Quantity::output) &&
          values_of(plain, Quantity::loss) == values_of(broken, Quantity::loss) &&
          values_of(plain, Quantity::parameter_gradient) ==
              values_of(broken, Quantity::parameter_gradient) &&
          values_of(plain, Quantity::reevaluation) != values_of(broken, Quantity::reevaluation),
      "Outputs, loss and all gradients of the step are the plain run's, for in training the "
      "batch's own statistics are used. What differs is what the model says in evaluation "
      "afterwards.");
  claim_law_finds(c, wrong, "the second update", "buffers-after-step", report);
}

}  // namespace
}  // namespace rematch::scenarios::batch_norm_twice_story

REMATCH_STORY(batch_norm_twice){
    "batch_norm_twice",
    "With checkpointing my BatchNorm counts two batches for each one, and my test results differ, "
    "though losses and gradients agree. Why?",
    "https://github.com/pytorch/pytorch/issues/96136",
    "The recomputation runs the layer again, and the layer updates its running statistics again. A "
    "recomputation has to be marked as one, and layers that carry state along must leave it alone "
    "then. Nothing in training shows the fault; evaluation does.",
    batch_norm_twice_story::run,
    {"Both variants update the statistics twice. Leave the normalization out of the checkpoint; or "
     "copy its buffers before the backward and restore them after it; or, non-reentrant, let the "
     "second context that `context_fn` returns set the layer's `momentum` to 0 for the "
     "recomputation (`num_batches_tracked` still counts it).",
     {{"V.batch_norm_statistics", "plain", "1"},
      {"V.batch_norm_statistics", "reentrant", "2"},
      {"V.batch_norm_statistics", "non_reentrant", "2"},
      {"N18.contexts", "recomputation_entered", "2"}}}};
