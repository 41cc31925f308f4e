#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "properties/hunt/fault_hunts.h"
#include "properties/hunt/profile.h"

namespace rematch {

/// The outcome of a fault in a profile, if the engine with the fault were the profile's subject.
struct FaultByProfile {
  const Fault* fault = nullptr;
  /// Number of cases until one had a violation that no entry explains; 0: none had.
  std::uint64_t cases = 0;
  /// The law of that violation.
  std::string_view law;
  /// Until then: in how many cases each entry explained a violation, by number of the entry.
  std::map<std::size_t, std::uint64_t> explained;

  bool is_new() const { return cases != 0; }
};

/// Judges each of `faults`, which must run, by each profile: `options.seeds` times `options.cases`
/// cases, or as many as it takes. One result for each profile, with the faults in their order; all
/// profiles judge the same runs. A fault that `stop` interrupted is left out.
std::vector<std::vector<FaultByProfile>> judge_faults_by(const std::vector<const Fault*>& faults,
                                                         const std::vector<Profile>& profiles,
                                                         const FaultHuntOptions& options);

/// The entry that says of itself, in its field `faults`, that its subject does what the fault does,
/// and that explained it in most cases; nullptr when there is none: then the profile hides the
/// fault.
const KnownDivergence* entry_that_names(const FaultByProfile& seen, const Profile& profile);

}  // namespace rematch
