#pragma once

#include "scenarios/report/scenario.h"

namespace rematch::scenarios::trade {

/// Which blocks are worth a checkpoint: bytes saved against operations run again.
void worth_checkpointing(Report& report);

}  // namespace rematch::scenarios::trade
