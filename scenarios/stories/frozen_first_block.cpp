#include <fmt/format.h>

#include "scenarios/stories/frozen_first_block/runs.h"

namespace rematch::scenarios::frozen_first_block_story {

void run(const Options& options, Report& report) {
  report.say(
      "The thread's network: two blocks of two convolutions, max pooling and dropout, then two "
      "linear layers. Instead of CIFAR-10 it learns pictures of the same size that are drawn here, "
      "so that nothing is downloaded: noisy stripes, whose direction and width are the class. The "
      "thread names neither optimizer nor batch size; here Adam with a step of 0.001 sees batches "
      "of {}. Every run starts from the same weights, sees the same batches, and draws its dropout "
      "masks from the same random stream.",
      frozen::kBatch);
  frozen::tell_runs(options, report);
}

}  // namespace rematch::scenarios::frozen_first_block_story
