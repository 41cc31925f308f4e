#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "properties/case/features.h"
#include "properties/generate/shrink.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt_options.h"
#include "properties/hunt/worker.h"
#include "properties/record/mixed.h"

namespace rematch {
namespace {

/// Whether law `a` is nearer to the cause than `b`, a law about bytes and events: those tell of a
/// fault even where numbers happen to hide it from the laws before them.
bool is_nearer(std::string_view a, std::string_view b) {
  const Law* const first = find_law(a);
  const Law* const second = find_law(b);
  if (first == nullptr || second == nullptr) return false;
  const bool about_events = second->reads.contains(Observable::live_bytes) ||
                            second->reads.contains(Observable::execution_order);
  return about_events && index_of(*first) < index_of(*second);
}

/// Shrinks a violating case with this subject: as long as the law is violated, and by what the
/// profile explained or did not explain before.
Finding shrink_violation(const HuntOptions& options, const ViolatingCase& violating,
                         Subject& subject, Workspace& workspace) {
  const std::string_view law = violating.violation.law;
  const Profile profile = options.profile.on(subject.declares().versions);
  GatherOptions gathering;
  gathering.laws = options.judged();
  gathering.poison_at_once = true;
  // The hunt has told noise from faults already.
  gathering.worth_repeating = [law](const Verdicts&) { return law == "repeatable"; };
  const auto violation_of = [&](const Case& c) -> std::optional<Violation> {
    const Verdicts verdicts = judge_case(c, subject, workspace, gathering);
    if (verdicts.kept()) return std::nullopt;
    const FeatureSet features = features_of(c, workspace.geometry);
    if (const Violation* unexplained = profile.first_unexplained(verdicts, c, features)) {
      return violating.known ? std::nullopt : std::optional(*unexplained);
    }
    for (const Violation& v : verdicts.violations) {
      if (violating.known && v.law == law && profile.explains(v, c, features) == violating.known) {
        return v;
      }
    }
    return std::nullopt;
  };
  const auto still_fails = [&](const Case& c) {
    if (options.stopped()) return false;
    try {
      const std::optional<Violation> violation = violation_of(c);
      return violation && (violation->law == law || is_nearer(violation->law, law));
    } catch (const NotJudged&) {
      return false;
    }
  };
  Finding finding{violating.violation, violating.index, violating.c,
                  violating.c,         violating.count, violating.known};
  ShrinkBudget budget = options.shrink;
  // Most steps compile another model.
  const Scope& scope = subject.declares().scope;
  if (scope.cases_per_shape > 1) budget.seconds *= 4;
  finding.smallest = shrink(violating.c, still_fails, budget, scope);
  // A case that violates only in its worker (state shared between threads, say) does not do so
  // here: then the violation that was seen stands, for the case as it was.
  if (std::optional<Violation> violation = violation_of(finding.smallest)) {
    finding.violation = *std::move(violation);
  } else {
    finding.smallest = violating.c;
  }
  return finding;
}

class LocalWorker final : public Worker {
 public:
  explicit LocalWorker(const HuntOptions& options)
      : options_(options),
        subject_(options.make_subject()),
        declared_(subject_->declares()),
        profile_(options.profile.on(declared_.versions)) {}

  const Scope& scope() const override { return declared_.scope; }
  const Versions& versions() const override { return declared_.versions; }

  void judge(CaseRange cases, const std::function<bool()>& go_on, Tally& tally) override {
    for (std::uint64_t index = cases.begin; index < cases.end && go_on(); ++index) {
      run_case(index, case_of(options_, declared_.scope, index), tally);
      if (!options_.keep_going && !tally.violating.empty()) break;
    }
  }

  Tally judge(std::uint64_t index, const Case& c) override {
    Tally tally;
    run_case(index, c, tally);
    return tally;
  }

  Finding shrink(const ViolatingCase& violating) override {
    return shrink_violation(options_, violating, *subject_, workspace_);
  }

 private:
  void run_case(std::uint64_t index, const Case& c, Tally& tally) {
    const LawSet asked = options_.judged();
    ++tally.cases;
    const DeviceWork before = subject_->device_work();
    Verdicts verdicts;
    GatherOptions gathering;
    gathering.laws = asked;
    gathering.worth_repeating = [&](const Verdicts& seen) {
      return profile_.first_unexplained(seen, c, features_of(c, workspace_.geometry)) != nullptr;
    };
    try {
      verdicts = judge_case(c, *subject_, workspace_, gathering);
      for (const auto& [kind, count] : subject_->device_work()) {
        const auto known = before.find(kind);
        tally.device_work[kind] += count - (known == before.end() ? 0 : known->second);
      }
    } catch (const NotJudged& error) {
      ++tally.not_judged;
      ++tally.why_not_judged[error.what()];
      return;
    }
    LawSet judged_by;
    for (std::size_t i = 0; i < tally.verdicts.size(); ++i) {
      if (!asked[i]) continue;
      const Verdict verdict = verdicts.by_law[i];
      ++tally.verdicts[i][static_cast<std::size_t>(verdict)];
      if (verdict == Verdict::kept || verdict == Verdict::violated) judged_by.set(i);
    }
    tally.structures.add(structure_of(c), judged_by);
    const auto hash_of = [index](std::uint64_t plain, std::uint64_t checkpointed) {
      return mixed(mixed(mixed(index) ^ plain) ^ checkpointed);
    };
    const Record& plain = workspace_.plain;
    const Record& checkpointed = workspace_.checkpointed;
    tally.record_hash += hash_of(plain.hash(), checkpointed.hash());
    tally.exact_hash += hash_of(plain.exact_hash(), checkpointed.exact_hash());
    const FeatureSet features = features_of(c, workspace_.geometry);
    features.for_each(
        [&](Feature feature) { ++tally.features[static_cast<std::size_t>(feature)]; });
    for (const Violation& violation : verdicts.violations) {
      const std::optional<std::size_t> entry = profile_.explains(violation, c, features);
      ++tally.violated[{index_of(*find_law(violation.law)), entry.value_or(kUnexplained)}];
    }
    if (verdicts.kept()) return;
    if (const Violation* violation = profile_.first_unexplained(verdicts, c, features)) {
      count_violating({index, c, *violation}, tally);
      ++tally.first_violated[index_of(*find_law(violation->law))];
    } else {
      count_known(index, c, features, verdicts, tally);
    }
  }

  void count_violating(ViolatingCase found, Tally& tally) const {
    const auto same = [&](const ViolatingCase& before) {
      Case c = before.c;
      vary(c, found.c);
      return before.violation.law == found.violation.law && c == found.c;
    };
    if (declared_.scope.cases_per_shape > 1) {
      const auto first = std::find_if(tally.violating.begin(), tally.violating.end(), same);
      if (first != tally.violating.end()) {
        ++first->count;
        return;
      }
    }
    tally.violating.push_back(std::move(found));
  }

  /// A case counts once for each entry that explains a violation of it.
  void count_known(std::uint64_t index, const Case& c, const FeatureSet& features,
                   const Verdicts& verdicts, Tally& tally) const {
    std::set<std::size_t> seen;
    bool has_bug = false;
    bool has_limit = false;
    for (const Violation& violation : verdicts.violations) {
      const std::optional<std::size_t> entry = profile_.explains(violation, c, features);
      if (!profile_.explains(violation, c, features, *entry + 1)) {
        tally.needed.emplace(*entry, index);
      }
      if (!seen.insert(*entry).second) continue;
      const bool is_bug = profile_.entries()[*entry].promised;
      has_bug = has_bug || is_bug;
      has_limit = has_limit || !is_bug;
      if (tally.known[*entry]++ == 0) tally.known_cases.push_back({index, c, violation, entry});
    }
    tally.cases_with_bug += has_bug ? 1 : 0;
    tally.cases_with_limit += has_limit ? 1 : 0;
  }

  const HuntOptions& options_;
  const std::unique_ptr<Subject> subject_;
  const Declaration declared_;
  const Profile profile_;
  Workspace workspace_;
};

}  // namespace

std::unique_ptr<Worker> local_worker(const HuntOptions& options) {
  return std::make_unique<LocalWorker>(options);
}

}  // namespace rematch
