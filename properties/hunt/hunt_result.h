#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "properties/hunt/finding.h"
#include "properties/hunt/hunt_options.h"
#include "properties/hunt/tally.h"
#include "properties/record/subject.h"

namespace rematch {

/// The tally of cases 0 .. cases - 1, of which without keep_going a violating case is the last one,
/// and the findings that its violating cases shrink to.
struct HuntResult : Tally {
  /// Versions of the subject.
  Versions versions;
  /// In the order of laws(), the most frequent of a law first. They lack what
  /// the profile explains.
  std::vector<Finding> findings;
  /// One for each entry of the profile that some case showed; shrunk with keep_going.
  std::vector<Finding> known_findings;
  /// Reasons why a hunt without a violation proves nothing: no case was run, no law had anything to
  /// judge, or a feature stayed below its floor. One sentence each.
  std::vector<std::string> shortfalls;
  /// Duration without shrinking, and the part of it until the first subject was ready.
  double seconds = 0;
  double start_seconds = 0;
  /// Stopped before all cases were judged, or before all violating cases were shrunk.
  bool interrupted = false;
  /// The error that ended the hunt after something had been found; before that, it would have been
  /// thrown.
  std::string error;

  bool passed() const { return findings.empty() && shortfalls.empty() && error.empty(); }
  double cases_per_second() const { return seconds > 0 ? static_cast<double>(cases) / seconds : 0; }
};

/// The result before anything is shrunk.
HuntResult result_of(const HuntSpec& spec, const Tally& total, const Scope& scope,
                     const Versions& versions);

/// Shrinks these cases, and with keep_going one for each entry of the profile that some case
/// showed, into the findings of `result`. Calls `report(done, of)` now and then.
void shrink_into(HuntResult& result, const HuntOptions& options,
                 std::vector<ViolatingCase> to_shrink,
                 const std::function<void(std::size_t done, std::size_t of)>& report);

}  // namespace rematch
