#pragma once

#include <span>
#include <string>

#include "properties/case/case.h"
#include "properties/record/record.h"

namespace rematch::cli {

/// A memory snapshot of PyTorch, which its viewer (pytorch.org/memory_viz) and
/// torch.cuda._memory_viz read: what was allocated and freed, in order, with the layer in place of
/// a stack. The plain run stands as device 0, the checkpointed one as device 1. It is a pickle of
/// protocol 2; the viewer reads 2 to 4.
std::string memory_snapshot(const Case& c, const Record& plain, const Record& checkpointed);

}  // namespace rematch::cli
