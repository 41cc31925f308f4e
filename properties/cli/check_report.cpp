#include "properties/cli/check_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/hunt/frameworks.h"

namespace rematch::cli {
namespace {

using KnownLine = CheckReport::KnownLine;

std::vector<CheckReport::LawLine> law_lines(const HuntOptions& o, const CheckOutcome& outcome) {
  std::vector<CheckReport::LawLine> lines;
  for (std::size_t i = 0; i < laws().size(); ++i) {
    if (!o.judged()[i]) continue;
    CheckReport::LawLine line{laws()[i].name, o.laws[i]};
    if (i < outcome.hunt.verdicts.size()) line.hunted = outcome.hunt.verdicts[i];
    // An estimate may be above what there can be.
    line.structures = std::min(outcome.hunt.structures.judged_by(i), judged_of(line.hunted));
    if (i < outcome.saved.verdicts.size()) line.saved = outcome.saved.verdicts[i];
    if (i < outcome.hunt.first_violated.size()) {
      line.first_violated = outcome.hunt.first_violated[i];
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<CheckReport::FeatureLine> feature_lines(const HuntOptions& o, const HuntResult& r) {
  std::vector<CheckReport::FeatureLine> lines;
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    lines.push_back({rematch::to_string(feature), r.features[i], floor(o.mix, feature)});
  }
  return lines;
}

std::vector<KnownLine> known_lines(const CheckArguments& a, const HuntOptions& o,
                                   const HuntResult& r) {
  std::vector<KnownLine> lines;
  const Profile profile = o.profile.on(r.versions);
  for (std::size_t i = 0; r.cases > 0 && i < o.profile.entries().size(); ++i) {
    if (!profile.holds(i)) continue;
    const auto needed = r.needed.find(i);
    KnownLine line{o.profile.entries()[i], r.known_of(i), std::nullopt, {}, {}};
    if (needed != r.needed.end()) line.first_case = needed->second;
    for (const Finding& f : r.known_findings) {
      if (f.known != i) continue;
      if (a.keep_going) line.smallest = f.smallest;
      line.again = a.keep_going && !a.save.empty()
                       ? replay_line(a.subject, known_file(a, line.entry.id))
                       : numbered_line(a, o.seed, f.index);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

CheckReport::Seen seen_of(const std::vector<KnownLine>& known, bool promised, std::uint64_t cases) {
  CheckReport::Seen seen{0, cases, 0};
  for (const KnownLine& line : known) {
    if (line.entry.promised == promised) ++(line.cases > 0 ? seen.entries : seen.unseen);
  }
  return seen;
}

/// Whether a function of the user's may be reentrant, as functions of autograd are, whose forward
/// records nothing: it was judged by the rules of the other variant, too.
bool looks_reentrant(const SubjectChoice& subject, const Violation& v) {
  return v.law == "requires-grad-map" && v.got == "requires no grad" &&
         subject.name.find(".py:") != std::string::npos &&
         subject.name.find("--variant") == std::string::npos;
}

/// What may explain a finding: a variant that the subject does not have; or PyTorch itself does
/// what the subject was found to do, and no profile says so.
std::vector<std::string> hints_for(const CheckArguments& a, const HuntOptions& o,
                                   const CheckOutcome& outcome) {
  constexpr const char* kOriginal = "pytorch";
  std::vector<std::string> hints;
  for (const Report& report : outcome.reports) {
    if (!looks_reentrant(a.subject, report.violation)) continue;
    hints.push_back(
        "In the forward of a torch.autograd.Function nothing requires grad, and all that it "
        "returns does. If your function is one, it is a reentrant checkpoint(): --variant "
        "reentrant judges it by the rules of that variant.");
    break;
  }
  if (!a.subject.profile.empty() || !o.profile.entries().empty()) return hints;
  const auto file = framework_profile(kOriginal);
  if (!file) return hints;
  std::optional<Profile> profile;
  for (const Report& report : outcome.reports) {
    if (!report.versions.contains("torch")) continue;
    if (!profile) profile = load_profile(*file).on(report.versions);
    const Case& c = report.smallest;
    const auto entry = profile->explains(report.violation, c, features_of(c, validate(c)));
    if (!entry) continue;
    hints.push_back(
        fmt::format("PyTorch itself does this, too ({}). --profile {} counts what PyTorch is known "
                    "to do as known, so that only the rest is reported.",
                    profile->entries()[*entry].id, kOriginal));
    break;
  }
  return hints;
}

}  // namespace

CheckReport report_of(const CheckArguments& a, const HuntOptions& o, const CheckOutcome& outcome) {
  const HuntResult& r = outcome.hunt;
  CheckReport report;
  static_cast<CheckOutcome&>(report) = outcome;
  report.subject = a.subject.name;
  report.device = a.subject.device;
  report.mix = a.mix;
  report.seed = o.seed;
  report.jobs = static_cast<std::uint64_t>(o.jobs);
  report.keep_going = a.keep_going;
  report.structures = std::min(r.structures.count(), r.cases - r.not_judged);
  report.structures_are_exact = r.structures.is_exact();
  report.violating_cases = r.violations();
  report.shrunk_per_law = o.shrunk_per_law;
  report.laws = law_lines(o, outcome);
  report.features = feature_lines(o, r);
  report.known = known_lines(a, o, r);
  report.bugs = seen_of(report.known, true, r.cases_with_bug);
  report.limits = seen_of(report.known, false, r.cases_with_limit);
  report.hints = hints_for(a, o, outcome);
  report.cases_per_second = r.cases_per_second();
  return report;
}

std::uint64_t CheckReport::checks() const {
  std::uint64_t sum = 0;
  for (const LawLine& law : laws) sum += law.checks();
  return sum;
}

int CheckReport::status() const {
  if (!reports.empty()) return kBroken;
  if (!errors.empty()) return kUsage;
  if (hunt.interrupted) return kInterrupted;
  return violating_cases > 0 || !hunt.shortfalls.empty() ? kBroken : kHeld;
}

}  // namespace rematch::cli
