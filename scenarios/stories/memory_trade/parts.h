#pragma once

#include "scenarios/report/report.h"

namespace rematch::scenarios::memory_trade_story {

/// Savings and costs of a checkpoint, block by block.
void worth_checkpointing(Report& report);

}  // namespace rematch::scenarios::memory_trade_story
