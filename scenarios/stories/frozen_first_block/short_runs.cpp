#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "properties/output/terminal.h"
#include "scenarios/stories/frozen_first_block/parts.h"
#include "scenarios/stories/frozen_first_block/training.h"
#include "scenarios/support/options.h"

namespace rematch::scenarios::frozen {
namespace {

/// Positions in wanted().
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

struct Wanted {
  Wiring wiring;
  /// The run that it is compared with after every step; itself: with none.
  Which reference;
};

std::vector<Wanted> wanted() {
  std::vector<Wanted> list(8);
  list[plain] = {{.name = "plain"}, plain};
  list[thread_version] = {{.name = "the thread's version",
                           .first_checkpointed = true,
                           .second_checkpointed = true,
                           .reentrant = true},
                          frozen_by_hand};
  list[frozen_by_hand] = {{.name = "plain, both blocks frozen by hand", .frozen_by_hand = 2},
                          frozen_by_hand};
  list[first_only] = {
      {.name = "only block 1 checkpointed", .first_checkpointed = true, .reentrant = true},
      first_only};
  list[first_block_plain] = {
      {.name = "fix 1: block 1 plain", .second_checkpointed = true, .reentrant = true}, plain};
  list[input_requires_grad] = {{.name = "fix 2: the input requires grad",
                                .first_checkpointed = true,
                                .second_checkpointed = true,
                                .reentrant = true,
                                .dropout_inside = true,
                                .input_requires_grad = true},
                               plain};
  list[non_reentrant] = {{.name = "fix 3: non-reentrant",
                          .first_checkpointed = true,
                          .second_checkpointed = true,
                          .dropout_inside = true},
                         plain};
  list[without_rng] = {{.name = "fix 3 without preserve_rng",
                        .first_checkpointed = true,
                        .second_checkpointed = true,
                        .dropout_inside = true,
                        .preserve_rng = false},
                       plain};
  return list;
}

/// Calls work(0) .. work(count - 1) on two threads.
void on_two_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto worker = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::future<void> other = std::async(std::launch::async, worker);
  worker();
  other.get();
}

/// One run, and how it fared beside its reference.
struct Lane {
  explicit Lane(const Wiring& wiring) : training(wiring, kSeed) {
    for (const Tensor& p : training.parameters()) first_weights.push_back(p.clone());
  }
  std::span<const Tensor> blocks() const {
    return std::span(training.parameters()).first(2 * Network::kBlockParameters);
  }

  Training training;
  Tensors first_weights;
  std::vector<Step> steps;
  /// Steps after which the loss and every weight had the bits of the reference.
  int equal_steps = 0;
  /// Weights with other bits than the reference's after the last step.
  std::int64_t different = 0;
};

using Lanes = std::vector<std::unique_ptr<Lane>>;

std::int64_t elements(std::span<const Tensor> tensors) {
  std::int64_t sum = 0;
  for (const Tensor& t : tensors) sum += t.elements();
  return sum;
}

/// Mean loss of the last quarter of the steps: single batches scatter.
double late_loss(const Lane& lane) {
  constexpr std::size_t kLast = kShortSteps / 4;
  double sum = 0;
  for (std::size_t i = lane.steps.size() - kLast; i < lane.steps.size(); ++i) {
    sum += lane.steps[i].loss;
  }
  return sum / kLast;
}

/// Trains all runs side by side and compares after every step. Empty when it was stopped.
Lanes train(std::int64_t samples, const Options& options) {
  const std::vector<Wanted> list = wanted();
  Lanes lanes;
  for (const Wanted& w : list) lanes.push_back(std::make_unique<Lane>(w.wiring));
  const std::vector<std::int64_t> order = epoch_order(samples, 0);
  for (int step = 0; step < kShortSteps; ++step) {
    if (stopped(options)) return {};
    const auto numbers = std::span(order).subspan(static_cast<std::size_t>(step * kBatch), kBatch);
    on_two_threads(lanes.size(), [&](std::size_t i) {
      lanes[i]->steps.push_back(lanes[i]->training.step(numbers));
    });
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      Lane& lane = *lanes[i];
      const Lane& reference = *lanes[list[i].reference];
      lane.different =
          different_elements(lane.training.parameters(), reference.training.parameters());
      const bool same_loss = std::bit_cast<std::uint64_t>(lane.steps.back().loss) ==
                             std::bit_cast<std::uint64_t>(reference.steps.back().loss);
      if (same_loss && lane.different == 0) ++lane.equal_steps;
    }
    tell(options, fmt::format("step {} of {}, eight runs side by side", step + 1, kShortSteps));
  }
  return lanes;
}

void tell_table(const std::vector<Wanted>& list, const Lanes& lanes, Report& report) {
  Table& table =
      report.table(fmt::format("{} steps of {} pictures", kShortSteps, kBatch),
                   {"run", "gradients of block 1, 2", "runs of block 1, 2 a step",
                    "warnings a step", "bytes saved by a forward", "mean loss, last 6 steps",
                    "compared with", "steps with the same bits"});
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = *lanes[i];
    const Step& s = lane.steps.back();
    const bool compared = list[i].reference != i;
    table.row({list[i].wiring.name, fmt::format("{} of 4, {} of 4", s.gradients[0], s.gradients[1]),
               fmt::format("{}, {}", s.executions[0], s.executions[1]), fmt::to_string(s.warnings),
               cli::grouped(s.saved_bytes), fmt::format("{:.4f}", late_loss(lane)),
               compared ? list[list[i].reference].wiring.name : "-",
               compared ? fmt::format("{} of {}", lane.equal_steps, kShortSteps) : "-"});
  }
}

Series losses(const Lane& lane, std::string name) {
  Series series{std::move(name), {}, {}};
  for (std::size_t i = 0; i < lane.steps.size(); ++i) {
    series.x.push_back(static_cast<double>(i + 1));
    series.y.push_back(lane.steps[i].loss);
  }
  return series;
}

void tell_what_froze(const Lanes& lanes, Report& report) {
  const Lane& thread = *lanes[thread_version];
  const Lane& only = *lanes[first_only];
  int gradients = 0;
  std::int64_t warnings = 0;
  for (const Step& s : thread.steps) {
    gradients += s.gradients[0] + s.gradients[1];
    warnings += s.warnings;
  }
  const std::int64_t moved = different_elements(
      thread.blocks(), std::span(thread.first_weights).first(thread.blocks().size()));
  report.claim(
      gradients == 0 && moved == 0,
      fmt::format("In the thread's version both blocks are frozen, not the first alone, as the "
                  "thread concludes: in "
                  "{} steps their 8 parameters received {} gradients (absent, not zero), "
                  "and {} of their {} weights changed a bit. The second block's input is "
                  "the first one's output, which does not require grad.",
                  kShortSteps, gradients, moved, cli::grouped(elements(thread.blocks()))));
  report.claim(
      thread.equal_steps == kShortSteps,
      fmt::format("It trains the head alone: losses and all {} weights have, after each of "
                  "{} steps, the bits of a plain network whose two blocks were frozen by "
                  "hand.",
                  cli::grouped(elements(thread.training.parameters())), thread.equal_steps));
  const double cost_of_one = late_loss(only) - late_loss(*lanes[plain]);
  const double cost_of_both = late_loss(thread) - late_loss(*lanes[plain]);
  report.claim(only.steps.back().gradients[0] == 0 && only.steps.back().gradients[1] == 4 &&
                   cost_of_one < cost_of_both,
               fmt::format("With block 1 alone checkpointed, block 1 alone is frozen, and costs "
                           "{:.4f} of loss in these steps; freezing both costs {:.4f}.",
                           cost_of_one, cost_of_both));
  report.claim(warnings == 2 * kShortSteps,
               fmt::format("It was not silent: `frozen_checkpoint_warnings()` counts {}, two a "
                           "step, and the text for each is: *{}*.",
                           warnings, kFrozenCheckpointWarning));
  report.claim(
      late_loss(thread) > late_loss(*lanes[plain]),
      fmt::format(
          "It does not diverge, it hardly learns: its loss goes from {:.4f} to {:.4f}, while "
          "the plain run's falls from {:.4f} to {:.4f} (mean of the last 6 steps).",
          thread.steps[0].loss, late_loss(thread), lanes[plain]->steps[0].loss,
          late_loss(*lanes[plain])));
}

void tell_fixes(const Lanes& lanes, Report& report) {
  const Lane& reference = *lanes[plain];
  const std::string all = cli::grouped(elements(reference.training.parameters()));
  const auto fixed = [&](Which which, const char* sentence) {
    report.claim(lanes[which]->equal_steps == kShortSteps,
                 fmt::format("{} {} of {} steps end with the plain run's loss and all {} weights, "
                             "bit for bit.",
                             sentence, lanes[which]->equal_steps, kShortSteps, all));
  };
  fixed(first_block_plain,
        "Fix 1, the thread's own: block 1 runs plain. Block 2, checkpointed still, trains again:");
  fixed(input_requires_grad,
        "Fix 2: let the pictures require grad. \"The first block in the model cannot be "
        "checkpointed\" is not so, nor need dropout stay outside:");
  fixed(non_reentrant, "Fix 3: the non-reentrant variant, dropout inside as well:");
  const Lane& drawn_anew = *lanes[without_rng];
  report.claim(
      drawn_anew.equal_steps == 0 && drawn_anew.steps[0].loss == reference.steps[0].loss,
      fmt::format(
          "\"Dropout is incompatible with checkpointing\" holds only without "
          "`preserve_rng`: the recomputation then draws other masks than the forward, no step ends "
          "with the plain run's bits, and after {} steps {} of {} weights differ. The loss "
          "falls all the same, to {:.4f}. (PyTorch once recomputed that way: "
          "[pull request 14253](https://github.com/pytorch/pytorch/pull/14253).)",
          kShortSteps, cli::grouped(drawn_anew.different), all, late_loss(drawn_anew)));
  const std::int64_t saved = reference.steps[0].saved_bytes;
  const std::int64_t kept = lanes[non_reentrant]->steps[0].saved_bytes;
  report.claim(kept < saved,
               fmt::format("What it was all for: between forward and backward the "
                           "plain graph holds {} bytes, with fix 3 it holds {} "
                           "({:.1f} %).",
                           cli::grouped(saved), cli::grouped(kept),
                           100.0 * static_cast<double>(kept) / static_cast<double>(saved)));
}

}  // namespace

std::optional<std::uint64_t> tell_short_runs(std::int64_t samples, const Options& options,
                                             Report& report) {
  const std::vector<Wanted> list = wanted();
  const Lanes lanes = train(samples, options);
  if (lanes.empty()) return std::nullopt;
  tell_table(list, lanes, report);
  report.chart({"Loss of each batch",
                "step",
                "cross-entropy",
                Chart::Kind::lines,
                {losses(*lanes[plain], "plain, and fixes 1, 2 and 3"),
                 losses(*lanes[first_only], "only block 1 checkpointed"),
                 losses(*lanes[thread_version], "the thread's version: both blocks")},
                {}});
  tell_what_froze(lanes, report);
  tell_fixes(lanes, report);
  return hash_of(lanes[plain]->training.parameters());
}

}  // namespace rematch::scenarios::frozen
