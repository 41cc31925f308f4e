// What does checkpointing save, and how is it to be measured? Parts: stories/memory_trade/.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ambient/ambient_scope.h"
#include "properties/output/terminal.h"
#include "scenarios/stories/memory_trade/blocks.h"
#include "scenarios/stories/memory_trade/mlp.h"
#include "scenarios/stories/memory_trade/statements.h"
#include "scenarios/support/options.h"

namespace rematch::scenarios::trade {
namespace {

using cli::grouped;

/// What the tutorial prints: the peak after a forward of one model, then, with the first model and
/// its output still there, that of a second one.
struct Printouts {
  std::int64_t first = 0;
  std::int64_t second = 0;
};

Printouts as_the_tutorial_measures(const Plan& plan) {
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  const Shapes shapes;
  Printouts printouts;
  const Mlp model(shapes);
  const Tensor x = Tensor::full({shapes.batch, shapes.width}, DType::float32, 0.5, Tag::inputs);
  const Tensor output = forward(model.functions(), plans()[0], x);
  printouts.first = ledger->peak();
  const Mlp model_checkpoint(shapes);
  ledger->reset_peak();
  const Tensor output_checkpoint = forward(model_checkpoint.functions(), plan, x);
  printouts.second = ledger->peak();
  return printouts;
}

std::string megabytes(std::int64_t bytes) {
  constexpr double kMegabyte = 1024.0 * 1024.0;
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kMegabyte);
}

void the_measurement(Report& report) {
  const Plan& nothing = plans()[0];
  const Plan& tutorials = plans()[1];
  report.say(
      "**The measurement.** The tutorial prints `max_memory_allocated()` after the forward of a "
      "model, makes a second one, resets the peak and prints it after a forward of that. (As "
      "written, nothing is ever moved to the GPU, whose memory it prints.) The same here, with the "
      "ledger in place of the GPU's allocator: MyModel is 1024 - relu - 1024 - relu - 10, the "
      "batch 32, and layer2 and layer3 are checkpointed in the forward, as the snippet means it.");
  Table& table = report.table("What the tutorial's two lines print, in MB",
                              {"second model", "without checkpointing", "with checkpointing"});
  const Printouts meant = as_the_tutorial_measures(tutorials);
  const Printouts control = as_the_tutorial_measures(nothing);
  table.row({"layer2 and layer3 checkpointed", megabytes(meant.first), megabytes(meant.second)});
  table.row({"nothing checkpointed", megabytes(control.first), megabytes(control.second)});
  const MlpStep step = train_step({}, nothing);
  report.claim(
      meant.second > meant.first && meant.second == control.second,
      fmt::format("The second line is larger, {} against {} bytes, and it is the same when "
                  "nothing is checkpointed: it counts both models and what the first "
                  "output still holds.",
                  grouped(meant.second), grouped(meant.first)));
  report.claim(
      step.peak > meant.first,
      fmt::format("And it comes too early. The highest moment of a training step lies in "
                  "the backward, which adds gradients and recomputes: {} bytes, {:.1f} times "
                  "the first line.",
                  grouped(step.peak),
                  static_cast<double>(step.peak) / static_cast<double>(meant.first)));
}

void the_model(Report& report) {
  const Shapes shapes;
  report.say(
      "**What is saved.** Each model alone, one whole training step (forward, mean square error, "
      "backward, SGD). Bytes after the forward are those beyond parameters, input and target.");
  Table& table = report.table("MyModel, batch 32",
                              {"checkpointed", "bytes after the forward", "peak of the step",
                               "function runs", "operations run again"});
  std::vector<MlpStep> steps;
  bool same_bits = true;
  for (const Plan& plan : plans()) {
    steps.push_back(train_step(shapes, plan));
    const MlpStep& step = steps.back();
    table.row({plan.name, grouped(step.after_forward), grouped(step.peak),
               std::to_string(step.count.total()), grouped(recomputed_operations(shapes, plan))});
    same_bits = same_bits && step.bits == steps[0].bits;
    constexpr int kRepeats = 3;
    double best = step.milliseconds;
    for (int i = 1; i < kRepeats; ++i) {
      best = std::min(best, train_step(shapes, plan).milliseconds);
    }
    report.measured(fmt::format("{}: {:.1f} ms a step", plan.name, best));
  }
  const MlpStep& plain = steps[0];
  const MlpStep& tutorials = steps[1];
  report.claim(tutorials.after_forward == plain.after_forward && tutorials.peak == plain.peak &&
                   tutorials.count.total() == plain.count.total() + 2,
               "The tutorial's choice saves nothing, after the forward or at the peak: a Linear "
               "keeps its input and so does its checkpoint. It runs two layers again for that.");
  const auto relus = std::find_if(steps.begin(), steps.end(), [&](const MlpStep& step) {
    return step.after_forward > plain.after_forward;
  });
  report.claim(relus == steps.begin() + 3,
               "Checkpointing the relus alone doubles what is kept: their input now lives beside "
               "their output, which the next layer keeps.");
  const std::int64_t parameters = Mlp(shapes).parameter_bytes();
  const bool none_lower = std::all_of(steps.begin(), steps.end(),
                                      [&](const MlpStep& step) { return step.peak == plain.peak; });
  report.claim(
      none_lower && plain.peak - 2 * parameters < plain.peak / 20,
      fmt::format("\"Significantly reduced memory usage\": of this model no choice lowers "
                  "the peak by one byte. Parameters and gradients are {} of its {} bytes, "
                  "and with two hidden layers a recomputation needs at once what was dropped.",
                  grouped(2 * parameters), grouped(plain.peak)));
  bool exact = true;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::size_t again = 0;
    for (const Region& region : plans()[i].regions) again += region.end - region.begin;
    exact = exact && steps[i].count.total() == plain.count.total() + static_cast<int>(again);
  }
  report.claim(
      exact, fmt::format("\"The exact overhead depends on the complexity and the number of the "
                         "modules\": it is known beforehand. Every checkpointed function runs once "
                         "more, so the most that a step can be charged is one forward, here {} "
                         "operations.",
                         grouped(recomputed_operations(shapes, plans().back()))));
  report.claim(same_bits,
               "Loss and gradients are those of the plain run, to the bit, in every row.");
}

void where_it_pays(const Options& options, Report& report) {
  constexpr double kKibibyte = 1024;
  Chart chart{.title = "Peak of a step over the depth: 128 wide, batch 1024",
              .x_label = "hidden layers",
              .y_label = "KiB, parameters and gradients included",
              .kind = Chart::Kind::lines,
              .series = {{"plain", {}, {}}, {"in about sqrt(n) blocks", {}, {}}}};
  report.say(
      "**Where it pays:** in deep models, whose activations outweigh their parameters. The same "
      "model 128 wide, with batch 1024 and more hidden layers, in about as many blocks as a block "
      "has layers:");
  Table& table =
      report.table("Peak of a step", {"hidden layers", "blocks", "plain", "checkpointed", "saved",
                                      "saved, percent", "function runs, plain", "checkpointed"});
  std::int64_t limit = 0;
  Shapes shapes{.batch = 1024, .width = 128, .hidden = 0};
  Plan plan;
  bool grows = true;
  double before = -1;
  const std::pair<int, int> kDepths[] = {{2, 1}, {4, 2}, {8, 2}, {16, 4}, {32, 4}};
  for (const auto& [hidden, blocks] : kDepths) {
    if (stopped(options)) return;
    tell(options, fmt::format("{} hidden layers", hidden));
    shapes.hidden = hidden;
    plan = equal_blocks(hidden, blocks);
    const MlpStep plain = train_step(shapes, plans()[0]);
    const MlpStep checkpointed = train_step(shapes, plan);
    const std::int64_t saved = plain.peak - checkpointed.peak;
    const double share = static_cast<double>(saved) / static_cast<double>(plain.peak);
    table.row({std::to_string(hidden), std::to_string(blocks), grouped(plain.peak),
               grouped(checkpointed.peak), grouped(saved), fmt::format("{:.1f}", 100 * share),
               std::to_string(plain.count.total()), std::to_string(checkpointed.count.total())});
    for (const bool which : {false, true}) {
      Series& series = chart.series[which ? 1 : 0];
      series.x.push_back(hidden);
      series.y.push_back(static_cast<double>((which ? checkpointed : plain).peak) / kKibibyte);
    }
    grows = grows && share >= before;
    before = share;
    limit = checkpointed.peak;
  }
  report.chart(std::move(chart));
  report.claim(
      grows && before > 0.4,
      fmt::format("The share of the peak that is saved grows with the depth, from nothing to "
                  "{:.0f} percent, for one more run of each hidden layer.",
                  100 * before));
  std::string error = "no error";
  try {
    train_step(shapes, plans()[0], limit);
  } catch (const OutOfMemory& e) {
    error = e.what();
  }
  bool fits = true;
  bool one_less = false;
  try {
    train_step(shapes, plan, limit);
  } catch (const OutOfMemory&) {
    fits = false;
  }
  try {
    train_step(shapes, plan, limit - 1);
  } catch (const OutOfMemory&) {
    one_less = true;
  }
  report.claim(
      fits && one_less && error != "no error",
      fmt::format("\"This can easily lead to an out of memory error\": with {} bytes to live "
                  "in, the deepest model trains when checkpointed, and ends plain in \"{}\". "
                  "One byte less, and the checkpointed one ends as well.",
                  grouped(limit), error));
}

void run_story(const Options& options, Report& report) {
  the_measurement(report);
  the_model(report);
  where_it_pays(options, report);
  worth_checkpointing(report);
  the_snippet(report);
  the_mechanism(report);
  report.say(
      "**How to measure.** One model in a process, the peak reset before the step and read after "
      "the optimizer, once the first step is over (its optimizer state is there from then on); "
      "bytes that the allocator was asked for, not what it reserved. **What to checkpoint:** not "
      "single layers, but blocks with much inside and little at their edges, cheap ones first, "
      "until the peak is low enough. The tutorial's advice on `preserve_rng_state` is a story of "
      "its own, [preserve_rng](#preserve_rng).");
}

}  // namespace
}  // namespace rematch::scenarios::trade

namespace rematch::scenarios {

extern const Scenario memory_trade;
const Scenario memory_trade{
    "memory_trade",
    "Checkpointing trades compute for memory. How much of either, of which layers, and how do I "
    "measure it?",
    "a tutorial on activation checkpointing in PyTorch, with a model of three linear layers",
    "In the tutorial's own model it saves nothing: it checkpoints single Linear layers, which keep "
    "no "
    "more than their checkpoint does, and measures before the backward, where the peak is. What "
    "pays is blocks with much inside, little at their edges and cheap to run again, in models "
    "deep enough that activations outweigh parameters.",
    trade::run_story,
    {"Checkpoint blocks, not single layers: `x = checkpoint(block, x, use_reentrant=False)` keeps "
     "the inputs of the block and nothing from inside. Call `torch.cuda.reset_peak_memory_stats()` "
     "before the forward, and read `torch.cuda.max_memory_allocated()` after the backward.",
     {{"N1.hidden", "plain_packs", "4"},
      {"N1.hidden", "checkpointed_packs", "1"},
      {"N5.after_forward", "non_reentrant", "0"}}}};

}  // namespace rematch::scenarios
