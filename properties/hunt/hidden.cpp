#include "properties/hunt/hidden.h"

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
  std::vector<Sighting> by_profile;
};

/// Notes what the profile makes of a case that violates laws.
void note(const Profile& profile, const Verdicts& verdicts, const Case& c,
          const FeatureSet& features, std::uint64_t cases, Sighting& sighting) {
  if (const Violation* violation = profile.first_unexplained(verdicts, c, features)) {
    sighting.cases = cases;
    sighting.law = violation->law;
    return;
  }
  std::set<std::size_t> entries;
  for (const Violation& violation : verdicts.violations) {
    entries.insert(*profile.explains(violation, c, features));
  }
  for (const std::size_t entry : entries) ++sighting.explained[entry];
}

}  // namespace

std::vector<std::vector<Sighting>> look_for_faults(const std::vector<const Fault*>& faults,
                                                   const std::vector<Profile>& asked,
                                                   const KillOptions& options) {
  std::vector<Profile> profiles;
  for (const Profile& profile : asked) profiles.push_back(profile.everywhere());
  const auto look = [&profiles](const Fault& fault, const KillOptions& o) {
    Row row{&fault, std::vector<Sighting>(profiles.size(), Sighting{&fault, 0, {}, {}})};
    EngineSubject engine(fault.make, o.device);
    Workspace workspace;
    const std::uint64_t all = static_cast<std::uint64_t>(o.seeds) * o.cases;
    for (std::uint64_t i = 0; i < all && !stopped(o); ++i) {
      const bool is_open = std::any_of(row.by_profile.begin(), row.by_profile.end(),
                                       [](const Sighting& sighting) { return !sighting.is_new(); });
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
        Sighting& sighting = row.by_profile[p];
        if (!sighting.is_new()) note(profiles[p], verdicts, c, features, i + 1, sighting);
      }
    }
    return row;
  };
  std::vector<std::vector<Sighting>> by_profile(profiles.size());
  for (Row& row : for_each_fault<Row>(faults, options, look)) {
    for (std::size_t p = 0; p < profiles.size(); ++p) {
      by_profile[p].push_back(std::move(row.by_profile[p]));
    }
  }
  return by_profile;
}

const KnownDivergence* excluded_by(const Sighting& sighting, const Profile& profile) {
  const KnownDivergence* named = nullptr;
  std::uint64_t most = 0;
  for (const auto& [entry, cases] : sighting.explained) {
    const KnownDivergence& known = profile.entries()[entry];
    const bool names = std::find(known.faults.begin(), known.faults.end(), sighting.fault->id) !=
                       known.faults.end();
    if (!names || cases <= most) continue;
    named = &known;
    most = cases;
  }
  return named;
}

}  // namespace rematch
