#include <fmt/format.h>

#include "scenarios/stories/frozen_first_block/runs.h"
#include "scenarios/stories/frozen_first_block/training.h"

namespace rematch::scenarios::frozen_first_block_story {
namespace {

void run(const Options& options, Report& report) {
  report.say(fmt::format(
      "The thread's network: two blocks of two convolutions, max pooling and dropout, then two "
      "linear layers. Instead of CIFAR-10 it learns pictures of the same size that are drawn here, "
      "so that nothing is downloaded: noisy stripes, whose direction and width are the class. The "
      "thread names neither optimizer nor batch size; here Adam with a step of 0.001 sees batches "
      "of {}. Every run starts from the same weights, sees the same batches, and draws its dropout "
      "masks from the same random stream.",
      frozen::kBatch));
  frozen::tell_runs(options, report);
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
      {"RE4.non_reentrant", "weight_has_gradient", "true"}}}};
