#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <functional>
#include <future>
#include <numeric>

#include "engine/checkpoint/checkpoint.h"
#include "properties/output/terminal.h"
#include "scenarios/report/scenario.h"
#include "scenarios/stories/frozen_first_block/training.h"

namespace rematch::scenarios::frozen_first_block_story {
namespace {

constexpr std::int64_t kBatch = 32;
constexpr int kSteps = 24;

/// Positions of the runs.
enum Which : std::size_t {
  plain,
  thread_version,
  frozen_by_hand,
  first_only,
  first_block_plain,
  input_requires_grad,
  non_reentrant,
  without_rng
};

/// One run, and how it fared beside its reference.
struct Lane {
  Lane(Wiring wiring, Which compared_with) : training(std::move(wiring)), reference(compared_with) {
    for (const Tensor& p : training.block_parameters()) first_weights.push_back(p.clone());
  }

  Training training;
  /// The run that it is compared with after every step; itself: with none.
  Which reference;
  /// Those of both blocks.
  Tensors first_weights;
  std::vector<Step> steps;
  /// Steps after which the loss and every weight had the bits of the reference.
  int equal_steps = 0;
  /// Weights with other bits than the reference's after the last step.
  std::int64_t different = 0;
};

using Lanes = std::vector<Lane>;

Lanes all_lanes() {
  const Wiring both{.name = {}, .first_checkpointed = true, .second_checkpointed = true};
  Wiring thread = both;
  thread.name = "the thread's version";
  thread.reentrant = true;
  Wiring by_grad = thread;
  by_grad.name = "fix 2: the input requires grad";
  by_grad.dropout_inside = by_grad.input_requires_grad = true;
  Wiring by_variant = both;
  by_variant.name = "fix 3: non-reentrant";
  by_variant.dropout_inside = true;
  Wiring other_masks = by_variant;
  other_masks.name = "fix 3 without preserve_rng";
  other_masks.preserve_rng = false;
  const Wiring by_hand{.name = "plain, both blocks frozen by hand", .frozen_by_hand = true};
  const Wiring first{
      .name = "only block 1 checkpointed", .first_checkpointed = true, .reentrant = true};
  const Wiring second{
      .name = "fix 1: block 1 plain", .second_checkpointed = true, .reentrant = true};
  const std::pair<Wiring, Which> wanted[] = {
      {{.name = "plain"}, plain}, {thread, frozen_by_hand}, {by_hand, frozen_by_hand},
      {first, first_only},        {second, plain},          {by_grad, plain},
      {by_variant, plain},        {other_masks, plain}};
  Lanes lanes;
  for (const auto& [wiring, reference] : wanted) lanes.emplace_back(wiring, reference);
  return lanes;
}

/// Makes the step with these pictures in each of `lanes`, two at a time.
void step_all(std::span<Lane* const> lanes, std::span<const std::int64_t> numbers) {
  std::atomic<std::size_t> next = 0;
  const auto worker = [&] {
    for (std::size_t i = next++; i < lanes.size(); i = next++) {
      lanes[i]->steps.push_back(lanes[i]->training.step(numbers));
    }
  };
  std::future<void> other = std::async(std::launch::async, worker);
  worker();
  other.get();
}

std::string elements(std::span<const Tensor> tensors) {
  std::int64_t sum = 0;
  for (const Tensor& t : tensors) sum += t.elements();
  return cli::grouped(sum);
}

/// Elements whose bits differ between two lists of tensors of equal shapes.
std::int64_t different_elements(std::span<const Tensor> a, std::span<const Tensor> b) {
  std::int64_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto* x = a[i].data<float>();
    const auto* y = b[i].data<float>();
    for (std::int64_t e = 0; e < a[i].elements(); ++e) {
      different += std::bit_cast<std::uint32_t>(x[e]) != std::bit_cast<std::uint32_t>(y[e]) ? 1 : 0;
    }
  }
  return different;
}

/// Mean loss of the last quarter of the steps: single batches scatter.
double late_loss(const Lane& lane) {
  double sum = 0;
  for (std::size_t i = kSteps - kSteps / 4; i < kSteps; ++i) sum += lane.steps[i].loss;
  return sum / (kSteps / 4);
}

/// Trains all runs side by side and compares after every step. False when it was stopped.
bool train(Lanes& lanes, const Options& options) {
  std::vector<Lane*> all;
  for (Lane& lane : lanes) all.push_back(&lane);
  for (int step = 0; step < kSteps; ++step) {
    if (options.stopped()) return false;
    std::array<std::int64_t, kBatch> numbers{};
    std::iota(numbers.begin(), numbers.end(), step * kBatch);
    step_all(all, numbers);
    for (Lane& lane : lanes) {
      const Lane& reference = lanes[lane.reference];
      lane.different =
          different_elements(lane.training.parameters(), reference.training.parameters());
      const bool same_loss = std::bit_cast<std::uint64_t>(lane.steps.back().loss) ==
                             std::bit_cast<std::uint64_t>(reference.steps.back().loss);
      if (same_loss && lane.different == 0) ++lane.equal_steps;
    }
  }
  return true;
}

void tell_table(const Lanes& lanes, Report& report) {
  Table& table =
      report.table(fmt::format("{} steps of {} pictures", kSteps, kBatch),
                   {"run", "gradients of block 1, 2", "runs of block 1, 2 a step",
                    "warnings a step", "bytes saved by a forward", "mean loss, last 6 steps",
                    "compared with", "steps with the same bits"});
  for (const Lane& lane : lanes) {
    const Step& s = lane.steps.back();
    const Lane& reference = lanes[lane.reference];
    const bool compared = &reference != &lane;
    table.row({lane.training.wiring().name,
               fmt::format("{} of 4, {} of 4", s.gradients[0], s.gradients[1]),
               fmt::format("{}, {}", s.executions[0], s.executions[1]), s.warnings,
               cli::grouped(s.saved_bytes), fmt::format("{:.4f}", late_loss(lane)),
               compared ? reference.training.wiring().name : "-",
               compared ? fmt::format("{} of {}", lane.equal_steps, kSteps) : "-"});
  }
}

Series losses(const Lane& lane, std::string name) {
  std::vector<double> values;
  for (const Step& s : lane.steps) values.push_back(s.loss);
  return numbered(std::move(name), std::move(values));
}

void tell_what_froze(const Lanes& lanes, Report& report) {
  const Lane& thread = lanes[thread_version];
  const Lane& only = lanes[first_only];
  int gradients = 0;
  std::int64_t warnings = 0;
  for (const Step& s : thread.steps) {
    gradients += s.gradients[0] + s.gradients[1];
    warnings += s.warnings;
  }
  const std::int64_t moved =
      different_elements(thread.training.block_parameters(), thread.first_weights);
  report.claim(gradients == 0 && moved == 0,
               "In the thread's version both blocks are frozen, not the first alone, as the thread "
               "concludes: in {} steps their 8 parameters received {} gradients (absent, not "
               "zero), and {} of their {} weights changed a bit. The second block's input is the "
               "first one's output, which does not require grad.",
               kSteps, gradients, moved, elements(thread.training.block_parameters()));
  report.claim(thread.equal_steps == kSteps,
               "It trains the head alone: losses and all {} weights have, after each of {} steps, "
               "the bits of a plain network whose two blocks were frozen by hand.",
               elements(thread.training.parameters()), thread.equal_steps);
  const double cost_of_one = late_loss(only) - late_loss(lanes[plain]);
  const double cost_of_both = late_loss(thread) - late_loss(lanes[plain]);
  report.claim(only.steps.back().gradients[0] == 0 && only.steps.back().gradients[1] == 4 &&
                   cost_of_one < cost_of_both,
               "With block 1 alone checkpointed, block 1 alone is frozen, and costs "
               "{:.4f} of loss in these steps; freezing both costs {:.4f}.",
               cost_of_one, cost_of_both);
  report.claim(warnings == 2 * kSteps,
               "It was not silent: `frozen_checkpoint_warnings()` counts {}, two a "
               "step, and the text for each is: *{}*.",
               warnings, kFrozenCheckpointWarning);
  report.claim(late_loss(thread) > late_loss(lanes[plain]),
               "It does not diverge, it hardly learns: its loss goes from {:.4f} to {:.4f}, while "
               "the plain run's falls from {:.4f} to {:.4f} (mean of the last 6 steps).",
               thread.steps[0].loss, late_loss(thread), lanes[plain].steps[0].loss,
               late_loss(lanes[plain]));
}

void tell_fixes(const Lanes& lanes, Report& report) {
  const Lane& reference = lanes[plain];
  const std::string all = elements(reference.training.parameters());
  const auto fixed = [&](Which which, const char* sentence) {
    report.claim(lanes[which].equal_steps == kSteps,
                 "{} {} of {} steps end with the plain run's loss and all {} weights, bit for bit.",
                 sentence, lanes[which].equal_steps, kSteps, all);
  };
  fixed(first_block_plain,
        "Fix 1, the thread's own: block 1 runs plain. Block 2, checkpointed still, trains again:");
  fixed(input_requires_grad,
        "Fix 2: let the pictures require grad. \"The first block in the model cannot be "
        "checkpointed\" is not so, nor need dropout stay outside:");
  fixed(non_reentrant, "Fix 3: the non-reentrant variant, dropout inside as well:");
  const Lane& drawn_anew = lanes[without_rng];
  report.claim(
      drawn_anew.equal_steps == 0 && drawn_anew.steps[0].loss == reference.steps[0].loss,

      "\"Dropout is incompatible with checkpointing\" holds only without "
      "`preserve_rng`: the recomputation then draws other masks than the forward, no step ends "
      "with the plain run's bits, and after {} steps {} of {} weights differ. The loss "
      "falls all the same, to {:.4f}. (PyTorch once recomputed that way: "
      "[pull request 14253](https://github.com/pytorch/pytorch/pull/14253).)",
      kSteps, cli::grouped(drawn_anew.different), all, late_loss(drawn_anew));
  const std::int64_t saved = reference.steps[0].saved_bytes;
  const std::int64_t kept = lanes[non_reentrant].steps[0].saved_bytes;
  report.claim(kept < saved,
               "What it was all for: between forward and backward the plain graph holds {} bytes, "
               "with fix 3 it holds {} ({:.1f} %).",
               cli::grouped(saved), cli::grouped(kept),
               100.0 * static_cast<double>(kept) / static_cast<double>(saved));
}

}  // namespace

/// Eight wirings side by side, compared to the bit after each step.
void run(const Options& options, Report& report) {
  report.say(
      "The thread's network: two blocks of two convolutions, max pooling and dropout, then two "
      "linear layers. Instead of CIFAR-10 it learns pictures of the same size that are drawn here, "
      "so that nothing is downloaded: noisy stripes, whose direction and width are the class. The "
      "thread names neither optimizer nor batch size; here Adam with a step of 0.001 sees batches "
      "of {}. Every run starts from the same weights, sees the same batches, and draws its dropout "
      "masks from the same random stream.",
      kBatch);
  Lanes lanes = all_lanes();
  if (!train(lanes, options)) return;
  tell_table(lanes, report);
  Chart chart = lines("Loss of each batch", "step", "cross-entropy");
  chart.series = {losses(lanes[plain], "plain, and fixes 1, 2 and 3"),
                  losses(lanes[first_only], "only block 1 checkpointed"),
                  losses(lanes[thread_version], "the thread's version: both blocks")};
  report.chart(std::move(chart));
  tell_what_froze(lanes, report);
  tell_fixes(lanes, report);
}

}  // namespace rematch::scenarios::frozen_first_block_story
