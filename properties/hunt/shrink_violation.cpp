#include "properties/hunt/shrink_violation.h"

#include <optional>
#include <string_view>
#include <utility>

#include "properties/case/features.h"
#include "properties/generate/shrink.h"

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

}  // namespace

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

}  // namespace rematch
