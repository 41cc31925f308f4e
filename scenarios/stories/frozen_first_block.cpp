#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "engine/ambient/ambient_scope.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/dropout.h"
#include "engine/ops/pool2d.h"
#include "scenarios/stories/frozen_first_block/runs.h"
#include "scenarios/stories/frozen_first_block/training.h"

namespace rematch::scenarios::frozen_first_block_story {
namespace {

const char* yes(bool b) { return b ? "yes" : "no"; }

/// Conditions that decide whether a checkpoint's output requires grad, case by case.
void tell_rules(Report& report) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Generator g{frozen::kSeed, 0, 0};
  nn::Conv2d conv(3, 4, 3, 1, 1, true, DType::float32, &g);
  struct Region {
    const char* name;
    Function function;
  };
  const std::array regions{
      Region{"a convolution", conv.function()},
      Region{"dropout", [](const Tensors& in) -> Tensors { return {dropout(in[0], 0.25)}; }},
      Region{"max pooling", [](const Tensors& in) -> Tensors { return {max_pool2d(in[0], 2, 2)}; }},
      Region{"a function that detaches its result",
             [&](const Tensors& in) -> Tensors { return {conv(in[0]).detach()}; }},
  };
  Table& table = report.table("Does the output require grad?",
                              {"region", "input requires grad", "plain", "reentrant checkpoint",
                               "non-reentrant checkpoint"});
  bool quoted_rule_holds = true;
  bool reentrant_follows_input = true;
  bool non_reentrant_follows_plain = true;
  for (const Region& region : regions) {
    for (const bool input : {false, true}) {
      Tensor x = Tensor::ones({1, 3, 4, 4}, DType::float32, Tag::inputs);
      x.set_requires_grad(input);
      const auto flag = [&](bool reentrant) {
        CheckpointOptions options;
        options.reentrant = reentrant;
        return checkpoint(region.function, {x}, options)[0].requires_grad();
      };
      const bool plain = region.function({x})[0].requires_grad();
      const bool has_parameters = &region == regions.data();
      const bool detaches = &region == &regions.back();
      quoted_rule_holds = quoted_rule_holds && (detaches || plain == (input || has_parameters));
      const bool reentrant = flag(true);
      const bool non_reentrant = flag(false);
      reentrant_follows_input = reentrant_follows_input && reentrant == input;
      non_reentrant_follows_plain = non_reentrant_follows_plain && non_reentrant == plain;
      table.row({region.name, yes(input), yes(plain), yes(reentrant), yes(non_reentrant)});
    }
  }
  report.claim(quoted_rule_holds,
               "The rule that the thread quotes is right: an operation's output requires grad when "
               "one of its inputs does, and weights are inputs. So plain the convolution makes "
               "pictures into something that requires grad, dropout and max pooling do not.");
  report.claim(reentrant_follows_input,
               "\"Solely determined by the input\" is right for the reentrant variant: in all 8 "
               "rows its output requires grad exactly when its input does, whatever the region "
               "contains, even where the plain output does not.");
  report.claim(non_reentrant_follows_plain,
               "It is wrong for the non-reentrant variant: in all 8 rows its output requires grad "
               "exactly when the plain one does. \"Applying checkpointing will not do this for "
               "you\" depends on the variant.");
}

/// Ten epochs of these take about two minutes on two cores.
constexpr std::int64_t kSamples = 2'000;

void run(const Options& options, Report& report) {
  const std::int64_t samples = options.samples > 0 ? options.samples : kSamples;
  constexpr std::int64_t kLeast = frozen::kShortSteps * frozen::kBatch;
  if (samples < kLeast) {
    throw std::invalid_argument(
        fmt::format("[frozen_first_block] at least {} samples expected, got {}", kLeast, samples));
  }
  report.say(fmt::format(
      "The thread's network: two blocks of two convolutions, max pooling and dropout, then two "
      "linear layers. Instead of CIFAR-10 it learns pictures of the same size that are drawn here, "
      "so that nothing is downloaded: noisy stripes, whose direction and width are the class. The "
      "thread names neither optimizer nor batch size; here Adam with a step of 0.001 sees batches "
      "of {}. Every run starts from the same weights, sees the same batches, and draws its dropout "
      "masks from the same random stream.",
      frozen::kBatch));
  if (options.epochs == 0) {
    report.say(
        "These are the first steps. `build/release/bin/rematch scenario frozen_first_block "
        "--epochs 10` goes on from them and draws the losses by epoch; `--samples` says how many "
        "pictures it trains on.");
  }
  frozen::tell_runs(samples, options, report);
  tell_rules(report);
}

}  // namespace
}  // namespace rematch::scenarios::frozen_first_block_story

REMATCH_STORY(frozen_first_block){
    "frozen_first_block",
    "I wrapped both convolutional blocks of my CIFAR-10 network in checkpoint(), and after 10 "
    "epochs its loss is 1.59 instead of 0.72. Where is my error?",
    "PyTorch forum, \"Use of torch.utils.checkpoint.checkpoint causes simple model to diverge\"",
    "A reentrant checkpoint's output requires grad only if its input does, and pictures do not: "
    "the first block is frozen, and with it the second, whose input it makes. Checkpoint the first "
    "block non-reentrantly, or let the input require grad, or leave that block plain: each of the "
    "three trains the plain network to the bit, with dropout inside the checkpoint or outside.",
    frozen_first_block_story::run,
    {"`checkpoint(block, x, use_reentrant=False)` trains the block whatever the input. If it has "
     "to be `use_reentrant=True`, call `x.requires_grad_()` on the pictures first, and take the "
     "warning \"None of the inputs have requires_grad=True\" for an error.",
     {{"RE4.frozen_input", "weight_has_gradient", "false"},
      {"RE4.frozen_input", "warnings", R"(["frozen"])"},
      {"RE4.one_input_trains", "weight_has_gradient", "true"},
      {"RE4.non_reentrant", "weight_has_gradient", "true"}}},
    true};
