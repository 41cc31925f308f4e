#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/random/generator.h"
#include "scenarios/data/batches.h"
#include "scenarios/report/scenario.h"
#include "scenarios/stories/frozen_first_block/parts.h"

namespace rematch::scenarios {
namespace frozen {

std::vector<std::int64_t> epoch_order(const Recipe& recipe, int epoch) {
  Generator g{kSeed, 2'000 + static_cast<std::uint64_t>(epoch), 0};
  return shuffled(recipe.samples, g);
}

}  // namespace frozen

}  // namespace rematch::scenarios

namespace rematch::scenarios::frozen_first_block_story {
namespace {

/// Ten epochs of these take about a quarter of an hour on two cores.
constexpr std::int64_t kSamples = 30'000;

void run(const Options& options, Report& report) {
  const Dataset data = open_dataset();
  const std::int64_t samples =
      std::min(options.samples > 0 ? options.samples : kSamples, data.train.count());
  constexpr std::int64_t kLeast = frozen::kShortSteps * frozen::kBatch;
  if (samples < kLeast) {
    throw std::invalid_argument(
        fmt::format("[frozen_first_block] at least {} samples expected, got {}", kLeast, samples));
  }
  const frozen::Recipe recipe{data, samples};
  report.say(fmt::format(
      "The thread's network on {}{}: two blocks of two convolutions, max pooling and dropout, then "
      "two linear layers. The thread names neither optimizer nor batch size; here Adam with a step "
      "of 0.001 sees batches of {}. Every run starts from the same weights, sees the same batches, "
      "and draws its dropout masks from the same random stream.",
      data.name,
      data.train.channels == 1 ? " (enlarged to 32 x 32, its grey value in all three channels)"
                               : "",
      frozen::kBatch));
  if (options.epochs == 0) {
    report.say(
        "These are the first steps. `build/release/bin/rematch scenario frozen_first_block "
        "--epochs "
        "10` goes on from them and draws the losses by epoch; `--samples` says how many pictures "
        "it "
        "trains on. With `REMATCH_CIFAR10=FOLDER` in the environment, the folder holding "
        "CIFAR-10's "
        "binary version, both train on that.");
  }
  const std::optional<std::uint64_t> hash = frozen::tell_short_runs(recipe, options, report);
  frozen::tell_rules(report);
  if (hash && options.epochs > 0) frozen::tell_long_runs(recipe, options, *hash, report);
}

}  // namespace
}  // namespace rematch::scenarios::frozen_first_block_story

namespace rematch::scenarios {

extern const Scenario frozen_first_block;
const Scenario frozen_first_block{
    "frozen_first_block",
    "I wrapped both convolutional blocks of my CIFAR-10 network in checkpoint(), and after 10 "
    "epochs its loss is 1.59 instead of 0.72. Where is my error?",
    "PyTorch forum, \"Use of torch.utils.checkpoint.checkpoint causes simple model to diverge\"",
    "A reentrant checkpoint's output requires grad only if its input does, and pictures do not: "
    "the "
    "first block is frozen, and with it the second, whose input it makes. Checkpoint the first "
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

}  // namespace rematch::scenarios
