#include "properties/hunt/lost_worker.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "properties/generate/shrink.h"
#include "properties/hunt/findings.h"
#include "properties/hunt/worker_process.h"
#include "properties/record/machine.h"

namespace rematch {
namespace {

/// A process is started for every candidate that still loses the device.
constexpr double kShrinkFactor = 6;

constexpr const char* kOneByOne = "CUDA_LAUNCH_BLOCKING=1";

Violation violation_of(const WorkerLost& lost) {
  return {"survives", "the whole run, alone in its process", "a record of each run", lost.what()};
}

/// `c` loses the device. One process judges candidates until one does so as well.
Case smallest_of(const HuntOptions& options, const Scope& scope, std::uint64_t index,
                 const Case& c) {
  std::unique_ptr<ProcessWorker> worker;
  const auto still_lost = [&](const Case& candidate) {
    if (options.stopped()) return false;
    if (!worker) worker = restart_process(options, kOneByOne);
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
    if (std::optional<Violation> again = judge_alone(options, found.index, smallest)) {
      finding.violation = *std::move(again);
      finding.smallest = std::move(smallest);
    }
  } catch (const std::exception& error) {
    report += fmt::format("\ncase {} was not shrunk: {}", found.index, describe(error));
  }
  return finding;
}

/// "case 5" or "cases 5, 8".
std::string named(const std::vector<std::uint64_t>& cases) {
  return fmt::format("case{} {}", cases.size() == 1 ? "" : "s", fmt::join(cases, ", "));
}

}  // namespace

bool judges_survival(const HuntSpec& spec) {
  return (spec.judged() & laws_named({"survives"})).any();
}

std::optional<Violation> judge_alone(const HuntOptions& options, std::uint64_t index,
                                     const Case& c) {
  const std::unique_ptr<ProcessWorker> worker = restart_process(options, kOneByOne);
  try {
    worker->judge(index, c);
    return std::nullopt;
  } catch (const WorkerLost& lost) {
    return violation_of(lost);
  }
}

LostWorkers try_in_flight(const HuntOptions& options, const Scope& scope,
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
    if (options.stopped()) {
      untried.push_back(index);
      continue;
    }
    try {
      std::optional<Violation> violation = judge_alone(options, index, c);
      if (!violation) {
        innocent.push_back(index);
        continue;
      }
      guilty.push_back({index, c, *std::move(violation)});
      if (!judges_survival(options)) continue;
      if (guilty.size() == 1 && options.found) options.found(guilty.back());
    } catch (const std::exception& error) {
      untried.push_back(index);
      failures += fmt::format("\ncase {} could not be tried: {}", index, describe(error));
    }
  }
  LostWorkers result;
  result.report =
      fmt::format("the hunt ended because {}: {}\nin flight: {}; tried alone in a process:",
                  lost.size() == 1 ? "a worker was lost"
                                   : fmt::format("{} workers were lost, the first", lost.size()),
                  lost.front().what(), named(all));
  std::vector<std::uint64_t> numbers;
  numbers.reserve(guilty.size());
  for (const ViolatingCase& v : guilty) numbers.push_back(v.index);
  if (!numbers.empty()) {
    result.report += fmt::format(
        "\n  {}: lost again; {}", named(numbers),
        judges_survival(options) ? "the finding" : "no finding, for the law survives is left out");
  }
  if (!innocent.empty()) result.report += fmt::format("\n  {}: innocent", named(innocent));
  if (!untried.empty()) result.report += fmt::format("\n  {}: not tried", named(untried));
  if (guilty.empty() && untried.empty()) {
    result.report +=
        "\nnone of them does it alone, so it takes what ran before or beside them, or came from "
        "outside (signal 9: out of memory?); compute-sanitizer finds the fault of a kernel";
    if (options.jobs > 1) result.report += ", and the same hunt with --jobs 1 what ran beside it";
  }
  result.report += failures;
  if (!judges_survival(options)) return result;
  for (const ViolatingCase& v : guilty) {
    result.findings.push_back(finding_of(options, scope, v, result.report));
  }
  result.findings = group(std::move(result.findings));
  return result;
}

}  // namespace rematch
