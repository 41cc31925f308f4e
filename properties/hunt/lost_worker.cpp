#include "properties/hunt/lost_worker.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "properties/generate/shrink.h"
#include "properties/hunt/findings.h"
#include "properties/hunt/worker_process.h"

namespace rematch {
namespace {

/// A process is started for every candidate that still loses the device.
constexpr double kShrinkFactor = 6;

bool stopped(const HuntOptions& options) { return options.stop != nullptr && options.stop->load(); }

/// After a fault an MPS server takes no clients until the last one of before has gone.
std::unique_ptr<ProcessWorker> start_alone(const HuntOptions& options) {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    try {
      return std::make_unique<ProcessWorker>(options, "CUDA_LAUNCH_BLOCKING=1");
    } catch (const std::exception&) {
      if (attempt == kAttempts || stopped(options)) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

Violation violation_of(const WorkerLost& lost) {
  return {"survives", "the whole run, alone in its process", "a record of each run", lost.what()};
}

/// `c` loses the device. One process judges candidates until one does so as well.
Case smallest_of(const HuntOptions& options, const Scope& scope, std::uint64_t index,
                 const Case& c) {
  std::unique_ptr<ProcessWorker> worker;
  const auto still_lost = [&](const Case& candidate) {
    if (stopped(options)) return false;
    if (!worker) worker = start_alone(options);
    try {
      worker->judge(index, candidate);
      return false;
    } catch (const WorkerLost&) {
      worker.reset();
      return true;
    }
  };
  ShrinkBudget budget = options.shrink;
  budget.seconds *= kShrinkFactor;
  return shrink(c, still_lost, budget, scope);
}

Finding finding_of(const HuntOptions& options, const Scope& scope, const ViolatingCase& found,
                   std::string& report) {
  Finding finding{found.violation, found.index, found.c, found.c};
  try {
    Case smallest = smallest_of(options, scope, found.index, found.c);
    if (smallest == found.c) return finding;
    // Candidates had others before them.
    if (std::optional<Violation> again = lost_alone(options, found.index, smallest)) {
      finding.violation = *std::move(again);
      finding.smallest = std::move(smallest);
    }
  } catch (const std::exception& error) {
    report += fmt::format("\ncase {} was not shrunk: {}", found.index, error.what());
  }
  return finding;
}

/// "case 5" or "cases 5, 8".
std::string named(const std::vector<std::uint64_t>& cases) {
  return fmt::format("case{} {}", cases.size() == 1 ? "" : "s", fmt::join(cases, ", "));
}

}  // namespace

std::optional<Violation> lost_alone(const HuntOptions& options, std::uint64_t index,
                                    const Case& c) {
  const std::unique_ptr<ProcessWorker> worker = start_alone(options);
  try {
    worker->judge(index, c);
    return std::nullopt;
  } catch (const WorkerLost& lost) {
    return violation_of(lost);
  }
}

LostWorkers look_into(const HuntOptions& options, const Scope& scope,
                      const std::vector<WorkerLost>& lost) {
  std::map<std::uint64_t, Case> in_flight;
  for (const WorkerLost& worker : lost) {
    for (std::uint64_t i = worker.in_flight.begin; i < worker.in_flight.end; ++i) {
      in_flight.emplace(i, case_of(options, scope, i));
    }
  }
  std::vector<ViolatingCase> guilty;
  std::vector<std::uint64_t> all;
  std::vector<std::uint64_t> innocent;
  std::vector<std::uint64_t> untried;
  std::string failures;
  for (const auto& [index, c] : in_flight) {
    all.push_back(index);
    if (stopped(options)) {
      untried.push_back(index);
      continue;
    }
    try {
      std::optional<Violation> violation = lost_alone(options, index, c);
      if (!violation) {
        innocent.push_back(index);
        continue;
      }
      guilty.push_back({index, c, *std::move(violation)});
      if (guilty.size() == 1 && options.found) options.found(guilty.back());
    } catch (const std::exception& error) {
      untried.push_back(index);
      failures += fmt::format("\ncase {} could not be tried: {}", index, error.what());
    }
  }
  LostWorkers result;
  result.report =
      fmt::format("the hunt ended because {}: {}\nin flight: {}; each tried alone in a process:",
                  lost.size() == 1 ? "a worker was lost"
                                   : fmt::format("{} workers were lost, the first", lost.size()),
                  lost.front().what(), named(all));
  std::vector<std::uint64_t> numbers;
  for (const ViolatingCase& v : guilty) numbers.push_back(v.index);
  if (!numbers.empty()) {
    result.report += fmt::format("\n  {}: lost again; the finding", named(numbers));
  }
  if (!innocent.empty()) result.report += fmt::format("\n  {}: innocent", named(innocent));
  if (!untried.empty()) result.report += fmt::format("\n  {}: not tried", named(untried));
  if (guilty.empty() && untried.empty()) {
    result.report +=
        "\nnone of them does it alone, so it takes what ran before or beside them; run the same "
        "hunt with --jobs 1, or under compute-sanitizer";
  }
  result.report += failures;
  for (const ViolatingCase& v : guilty) {
    result.findings.push_back(finding_of(options, scope, v, result.report));
  }
  result.findings = group(std::move(result.findings));
  return result;
}

}  // namespace rematch
