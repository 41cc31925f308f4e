#include "properties/hunt/faults_by_profile.h"

#include <algorithm>
#include <set>

#include "properties/generate/mix.h"
#include "properties/hunt/each_fault.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

/// One fault, by every profile.
struct Row {
  const Fault* fault = nullptr;
  std::vector<FaultByProfile> by_profile;
};

/// Notes what the profile makes of a case that violates laws.
void note(const Profile& profile, const Verdicts& verdicts, const Case& c,
          const FeatureSet& features, std::uint64_t cases, FaultByProfile& seen) {
  if (const Violation* violation = profile.first_unexplained(verdicts, c, features)) {
    seen.cases = cases;
    seen.law = violation->law;
    return;
  }
  std::set<std::size_t> entries;
  for (const Violation& violation : verdicts.violations) {
    entries.insert(*profile.explains(violation, c, features));
  }
  for (const std::size_t entry : entries) ++seen.explained[entry];
}

}  // namespace

std::vector<std::vector<FaultByProfile>> judge_faults_by(const std::vector<const Fault*>& faults,
                                                         const std::vector<Profile>& asked,
                                                         const FaultHuntOptions& options) {
  std::vector<Profile> profiles;
  for (const Profile& profile : asked) profiles.push_back(profile.everywhere());
  const auto look = [&profiles](const Fault& fault, const FaultHuntOptions& o) {
    Row row{&fault,
            std::vector<FaultByProfile>(profiles.size(), FaultByProfile{&fault, 0, {}, {}})};
    EngineSubject engine(fault.make, o.device);
    Workspace workspace;
    const std::uint64_t all = static_cast<std::uint64_t>(o.seeds) * o.cases;
    for (std::uint64_t i = 0; i < all && !stopped(o); ++i) {
      const bool is_open = std::any_of(row.by_profile.begin(), row.by_profile.end(),
                                       [](const FaultByProfile& seen) { return !seen.is_new(); });
      if (!is_open) break;
      const Case c = generate_case(o.mix, 1 + i / o.cases, i % o.cases, engine.declares().scope);
      Verdicts verdicts;
      try {
        verdicts = judge_case(c, engine, workspace);
      } catch (const NotJudged&) {
        continue;
      }
      if (verdicts.kept()) continue;
      const FeatureSet features = features_of(c, workspace.geometry);
      for (std::size_t p = 0; p < profiles.size(); ++p) {
        FaultByProfile& seen = row.by_profile[p];
        if (!seen.is_new()) note(profiles[p], verdicts, c, features, i + 1, seen);
      }
    }
    return row;
  };
  std::vector<std::vector<FaultByProfile>> by_profile(profiles.size());
  for (Row& row : for_each_fault<Row>(faults, options, look)) {
    for (std::size_t p = 0; p < profiles.size(); ++p) {
      by_profile[p].push_back(std::move(row.by_profile[p]));
    }
  }
  return by_profile;
}

const KnownDivergence* entry_that_names(const FaultByProfile& seen, const Profile& profile) {
  const KnownDivergence* named = nullptr;
  std::uint64_t most = 0;
  for (const auto& [entry, cases] : seen.explained) {
    const KnownDivergence& known = profile.entries()[entry];
    const bool names =
        std::find(known.faults.begin(), known.faults.end(), seen.fault->id) != known.faults.end();
    if (!names || cases <= most) continue;
    named = &known;
    most = cases;
  }
  return named;
}

}  // namespace rematch
