#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/hunt/finding.h"
#include "properties/hunt/hunt_options.h"
#include "properties/hunt/worker.h"

namespace rematch {

// A worker that lost its device, or died, says little about the case that it had then: an earlier
// kernel may have done the damage, and a fault of one client of an MPS server ends all of them. So
// the hunt ends, and each case that was in flight anywhere is tried alone.

/// The outcome for the cases in flight.
struct LostWorkers {
  /// Which cases these were, which of them lose the device again, and which do not.
  std::string report;
  /// Those that do, shrunk: violations of the law `survives`.
  std::vector<Finding> findings;
};

/// Tries them, after every other worker has ended. Processes that try a case launch kernels one
/// after another, so that the first error names the kernel.
LostWorkers try_in_flight(const HuntOptions& options, const Scope& scope,
                          const std::vector<WorkerLost>& lost);

/// Whether the hunt judges by the law that a lost worker violates.
bool judges_survival(const HuntSpec& spec);

/// Judges a case in a process that does nothing else. The violation of `survives`, where that loses
/// the device or the process.
std::optional<Violation> judge_alone(const HuntOptions& options, std::uint64_t index,
                                     const Case& c);

}  // namespace rematch
