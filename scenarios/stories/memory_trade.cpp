// Question: what does checkpointing save, and how is it measured? Parts: stories/memory_trade/.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "properties/output/terminal.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::memory_trade_story {

/// Savings and costs of a checkpoint, block by block.
void worth_checkpointing(Report& report);

namespace {

using cli::grouped;

constexpr std::uint64_t kSeed = 5;
constexpr std::int64_t kClasses = 10;

/// `hidden` times Linear and relu, then Linear to ten classes. The tutorial's MyModel by default:
/// layer1, relu, layer2, relu, layer3.
struct Shapes {
  std::int64_t batch = 32;
  std::int64_t width = 1024;
  int hidden = 2;
};

nn::Sequential model_of(const Shapes& shapes) {
  Generator generator{kSeed, 0, 0};
  std::vector<ModulePtr> modules;
  for (int i = 0; i < shapes.hidden; ++i) {
    modules.push_back(linear_layer(shapes.width, shapes.width, generator));
    modules.push_back(activation(nn::ActivationKind::relu));
  }
  modules.push_back(linear_layer(shapes.width, kClasses, generator));
  return nn::Sequential(std::move(modules));
}

struct Plan {
  std::string name;
  std::vector<Region> regions;
};

/// For MyModel: nothing first, then layer2 and layer3 each, as the tutorial means it, and others.
const std::vector<Plan>& plans() {
  static const std::vector<Plan> kPlans{{"nothing", {}},
                                        {"layer2, layer3 (the tutorial's)", {{2, 3}, {4, 5}}},
                                        {"layer1 + relu, layer2 + relu", {{0, 2}, {2, 4}}},
                                        {"relu, relu", {{1, 2}, {3, 4}}},
                                        {"all up to layer3 as one", {{0, 4}}},
                                        {"the whole model as one", {{0, 5}}}};
  return kPlans;
}

/// `blocks` regions of equal size over all hidden layers; it must divide their number.
std::vector<Region> equal_blocks(int hidden, int blocks) {
  // A hidden layer is a Linear and its relu.
  const auto size = static_cast<std::size_t>(2 * hidden / blocks);
  std::vector<Region> regions;
  for (std::size_t i = 0; i < static_cast<std::size_t>(blocks); ++i) {
    regions.push_back({i * size, (i + 1) * size});
  }
  return regions;
}

/// Observations of one training step: forward, mean square error, backward, SGD.
struct Step {
  /// Beyond parameters, input and target, with the output held.
  std::int64_t after_forward = 0;
  /// Peak of all bytes, parameters and gradients included.
  std::int64_t peak = 0;
  std::int64_t parameters = 0;
  int runs = 0;
  Values values;
  /// Time of forward, backward and SGD.
  double milliseconds = 0;
};

/// `limit`: bytes that may be live; throws OutOfMemory when they do not do.
Step train_step(const Shapes& shapes, const std::vector<Region>& regions,
                std::optional<std::int64_t> limit = std::nullopt) {
  Step step;
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  nn::Sequential model = model_of(shapes);
  nn::Sgd optimizer(model.parameters(), 0.01);
  Generator data{kSeed, 1, 0};
  const Tensor x = normal_input({shapes.batch, shapes.width}, data);
  const Tensor target = normal_input({shapes.batch, kClasses}, data);
  const std::int64_t before = ledger->live();
  std::vector<int> order;
  const std::vector<Function> functions = counting(model.functions(), order);
  ledger->set_limit(limit);
  const auto begin = std::chrono::steady_clock::now();
  {
    const Tensor output = run_regions(functions, regions, x);
    step.after_forward = ledger->live() - before;
    const Tensor loss = mse_loss(output, target);
    backward(loss);
    step.values.loss = loss.item();
  }
  optimizer.step();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  step.milliseconds = taken.count();
  step.peak = ledger->peak();
  step.parameters = ledger->live(Tag::parameters);
  step.runs = static_cast<int>(order.size());
  step.values.gradients = bits_of(gradients_of(model.parameters()));
  return step;
}

/// Operations of the functions that run again: two for each multiply-add of a product, one for each
/// element of a relu.
std::int64_t recomputed_operations(const Shapes& shapes, const std::vector<Region>& regions) {
  const auto last = static_cast<std::size_t>(2 * shapes.hidden);
  std::int64_t total = 0;
  for (const Region& region : regions) {
    for (std::size_t i = region.begin; i < region.end; ++i) {
      const std::int64_t out = i == last ? kClasses : shapes.width;
      total += i % 2 == 0 ? 2 * shapes.batch * shapes.width * out : shapes.batch * shapes.width;
    }
  }
  return total;
}

/// The numbers that the tutorial prints: the peak after a forward of one model, then, with the
/// first model and its output still there, that of a second one.
std::pair<std::int64_t, std::int64_t> as_the_tutorial_measures(const std::vector<Region>& regions) {
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  const Shapes shapes;
  nn::Sequential model = model_of(shapes);
  const Tensor x = Tensor::full({shapes.batch, shapes.width}, DType::float32, 0.5, Tag::inputs);
  const Tensor output = model(x);
  const std::int64_t first = ledger->peak();
  nn::Sequential model_checkpoint = model_of(shapes);
  ledger->reset_peak();
  const Tensor output_checkpoint = run_regions(model_checkpoint.functions(), regions, x);
  return {first, ledger->peak()};
}

std::string megabytes(std::int64_t bytes) {
  constexpr double kMegabyte = 1024.0 * 1024.0;
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kMegabyte);
}

void the_measurement(Report& report) {
  report.say(
      "**The measurement.** The tutorial prints `max_memory_allocated()` after the forward of a "
      "model, makes a second one, resets the peak and prints it after a forward of that. (As "
      "written, nothing is ever moved to the GPU, whose memory it prints.) The same here, with the "
      "ledger in place of the GPU's allocator: MyModel is 1024 - relu - 1024 - relu - 10, the "
      "batch 32, and layer2 and layer3 are checkpointed in the forward, as the snippet means it.");
  Table& table = report.table("What the tutorial's two lines print, in MB",
                              {"second model", "without checkpointing", "with checkpointing"});
  const auto meant = as_the_tutorial_measures(plans()[1].regions);
  const auto control = as_the_tutorial_measures({});
  table.row({"layer2 and layer3 checkpointed", megabytes(meant.first), megabytes(meant.second)});
  table.row({"nothing checkpointed", megabytes(control.first), megabytes(control.second)});
  const Step step = train_step({}, {});
  report.claim(meant.second > meant.first && meant.second == control.second,
               "The second line is larger, {} against {} bytes, and it is the same when nothing is "
               "checkpointed: it counts both models and what the first output still holds.",
               grouped(meant.second), grouped(meant.first));
  report.claim(
      step.peak > meant.first,
      "And it comes too early. The highest moment of a training step lies in the backward, which "
      "adds gradients and recomputes: {} bytes, {:.1f} times the first line.",
      grouped(step.peak), static_cast<double>(step.peak) / static_cast<double>(meant.first));
}

void the_model(Report& report) {
  const Shapes shapes;
  report.say(
      "**What is saved.** Each model alone, one whole training step (forward, mean square error, "
      "backward, SGD). Bytes after the forward are those beyond parameters, input and target.");
  Table& table = report.table("MyModel, batch 32",
                              {"checkpointed", "bytes after the forward", "peak of the step",
                               "function runs", "operations run again"});
  std::vector<Step> steps;
  bool same_bits = true;
  for (const Plan& plan : plans()) {
    steps.push_back(train_step(shapes, plan.regions));
    const Step& step = steps.back();
    table.row({plan.name, grouped(step.after_forward), grouped(step.peak), step.runs,
               grouped(recomputed_operations(shapes, plan.regions))});
    same_bits &= step.values == steps[0].values;
    constexpr int kRepeats = 3;
    double best = step.milliseconds;
    for (int i = 1; i < kRepeats; ++i) {
      best = std::min(best, train_step(shapes, plan.regions).milliseconds);
    }
    report.measured("{}: {:.1f} ms a step", plan.name, best);
  }
  const Step& plain = steps[0];
  const Step& tutorials = steps[1];
  report.claim(tutorials.after_forward == plain.after_forward && tutorials.peak == plain.peak &&
                   tutorials.runs == plain.runs + 2,
               "The tutorial's choice saves nothing, after the forward or at the peak: a Linear "
               "keeps its input and so does its checkpoint. It runs two layers again for that.");
  const auto relus = std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
    return step.after_forward > plain.after_forward;
  });
  report.claim(relus == steps.begin() + 3,
               "Checkpointing the relus alone doubles what is kept: their input now lives beside "
               "their output, which the next layer keeps.");
  const bool none_lower = std::all_of(steps.begin(), steps.end(),
                                      [&](const Step& step) { return step.peak == plain.peak; });
  report.claim(none_lower && plain.peak - 2 * plain.parameters < plain.peak / 20,
               "\"Significantly reduced memory usage\": of this model no choice lowers the peak by "
               "one byte. Parameters and gradients are {} of its {} bytes, and with two hidden "
               "layers a recomputation needs at once what was dropped.",
               grouped(2 * plain.parameters), grouped(plain.peak));
  bool exact = true;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::size_t again = 0;
    for (const Region& region : plans()[i].regions) again += region.end - region.begin;
    exact &= steps[i].runs == plain.runs + static_cast<int>(again);
  }
  report.claim(exact,
               "\"The exact overhead depends on the complexity and the number of the modules\": it "
               "is known beforehand. Every checkpointed function runs once more, so the most that "
               "a step can be charged is one forward, here {} operations.",
               grouped(recomputed_operations(shapes, plans().back().regions)));
  report.claim(same_bits,
               "Loss and gradients are those of the plain run, to the bit, in every row.");
}

void where_it_pays(const Options& options, Report& report) {
  Chart chart =
      lines("Peak of a step over the depth: 128 wide, batch 1024", "hidden layers",
            "KiB, parameters and gradients included", {"plain", "in about sqrt(n) blocks"});
  report.say(
      "**Where it pays:** in deep models, whose activations outweigh their parameters. The same "
      "model 128 wide, with batch 1024 and more hidden layers, in about as many blocks as a block "
      "has layers:");
  Table& table =
      report.table("Peak of a step", {"hidden layers", "blocks", "plain", "checkpointed", "saved",
                                      "saved, percent", "function runs, plain", "checkpointed"});
  std::int64_t limit = 0;
  Shapes shapes{.batch = 1024, .width = 128, .hidden = 0};
  std::vector<Region> regions;
  bool grows = true;
  double before = -1;
  const std::pair<int, int> kDepths[] = {{2, 1}, {4, 2}, {8, 2}, {16, 4}, {32, 4}};
  for (const auto& [hidden, blocks] : kDepths) {
    if (options.stopped()) return;
    shapes.hidden = hidden;
    regions = equal_blocks(hidden, blocks);
    const Step plain = train_step(shapes, {});
    const Step checkpointed = train_step(shapes, regions);
    const std::int64_t saved = plain.peak - checkpointed.peak;
    const double share = static_cast<double>(saved) / static_cast<double>(plain.peak);
    table.row({hidden, blocks, grouped(plain.peak), grouped(checkpointed.peak), grouped(saved),
               fmt::format("{:.1f}", 100 * share), plain.runs, checkpointed.runs});
    for (Series& series : chart.series) series.x.push_back(hidden);
    chart.series[0].y.push_back(in_kib(plain.peak));
    chart.series[1].y.push_back(in_kib(checkpointed.peak));
    grows &= share >= before;
    before = share;
    limit = checkpointed.peak;
  }
  report.chart(std::move(chart));
  report.claim(grows && before > 0.4,
               "The share of the peak that is saved grows with the depth, from nothing to {:.0f} "
               "percent, for one more run of each hidden layer.",
               100 * before);
  const auto error = [&](const std::vector<Region>& checkpoints, std::int64_t bytes) {
    return error_of<OutOfMemory>([&] { train_step(shapes, checkpoints, bytes); });
  };
  const std::string plain_error = error({}, limit);
  report.claim(
      !plain_error.empty() && error(regions, limit).empty() && !error(regions, limit - 1).empty(),
      "\"This can easily lead to an out of memory error\": with {} bytes to live in, the "
      "deepest model trains when checkpointed, and ends plain in \"{}\". One byte less, "
      "and the checkpointed one ends as well.",
      grouped(limit), plain_error);
}

}  // namespace

void run(const Options& options, Report& report) {
  the_measurement(report);
  the_model(report);
  where_it_pays(options, report);
  worth_checkpointing(report);
  report.say(
      "**How to measure.** One model in a process, the peak reset before the step and read after "
      "the optimizer, once the first step is over (its optimizer state is there from then on); "
      "bytes that the allocator was asked for, not what it reserved. **What to checkpoint:** not "
      "single layers, but blocks with much inside and little at their edges, cheap ones first, "
      "until the peak is low enough. The tutorial's advice on `preserve_rng_state` is a story of "
      "its own, [preserve_rng](preserve_rng.md).");
}

}  // namespace rematch::scenarios::memory_trade_story
