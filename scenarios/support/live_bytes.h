#pragma once

#include <span>
#include <string>

#include "engine/memory/ledger.h"
#include "scenarios/report/report.h"

namespace rematch::scenarios {

/// The live bytes of a ledger's timeline over its events, in KiB, for a chart of steps.
Series live_kib(std::string name, std::span<const LedgerEvent> events);

}  // namespace rematch::scenarios
