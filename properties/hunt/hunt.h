#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "properties/case/features.h"
#include "properties/generate/mix.h"
#include "properties/generate/shrink.h"
#include "properties/hunt/profile.h"
#include "properties/laws/law.h"
#include "properties/record/subject.h"

namespace rematch {

struct HuntProgress {
  std::uint64_t cases = 0;
  double seconds = 0;
  /// Cases that violated a law, so far.
  std::uint64_t violations = 0;
  /// After the hunt: how many violating cases have been shrunk, and how many will be.
  std::size_t shrunk = 0;
  std::size_t to_shrink = 0;
};

/// A case of a hunt, and the first law that it violates.
struct ViolatingCase {
  std::uint64_t index = 0;
  Case c;
  Violation violation;
  /// The entry of the profile that explains the violation.
  std::optional<std::size_t> known = std::nullopt;
  /// Cases that differ from it in what vary() takes over alone, and violate the same law first.
  /// Only the first of them is kept, since they would shrink alike.
  std::uint64_t count = 1;
};

/// One of `of` parts of a hunt of a fixed number of cases, as equal as whole chunks allow. Part 1
/// has the first cases.
struct Shard {
  std::uint64_t number = 1;
  std::uint64_t of = 1;
};

struct Tally;

struct HuntOptions {
  Mix mix = Mix::wide;
  std::uint64_t seed = 1;
  /// The hunt ends at whichever limit comes first; with neither, only `stop` or a violation ends
  /// it.
  std::optional<std::uint64_t> cases;
  std::optional<double> seconds;
  /// The part of `cases` that is hunted. A part is not shrunk, and floors are not checked: that is
  /// for conclude(), when all parts are there.
  Shard shard;
  /// What came of the first cases of the part before; the hunt goes on behind them.
  const Tally* before = nullptr;
  /// Called with what came of the cases that follow, in their order, from one thread at a time.
  std::function<void(const Tally&)> committed;
  /// Threads, or processes, at least 1. Of the result only device_work depends on their number.
  int jobs = 1;
  /// If not empty: each job is a process, which this command of the shell starts, and which serves
  /// the same hunt (hunt/worker_process.h). It is for subjects that can end the process that they
  /// run in, or make it useless: on a device. Neither make_subject nor generate is then used.
  std::string worker;
  /// Longest that a case may take in such a process, and longest that it may take to start.
  double worker_limit = 60;
  /// The laws to judge by. A hunt fails if none of them had anything to judge.
  LawSet laws = all_laws();
  /// Always judged, because a failed run says nothing about other laws.
  LawSet failures = failure_laws();
  LawSet judged() const { return laws | failures; }
  /// Known divergences of the subject. Violations that they explain are counted, and do not end the
  /// hunt.
  Profile profile;
  /// Continue after a violation, and report all violations.
  bool keep_going = false;
  /// With keep_going: how many violating cases of each law are shrunk.
  std::size_t shrunk_per_law = 100;
  /// Called once in each thread of the hunt, and once in each thread that shrinks.
  std::function<std::unique_ptr<Subject>()> make_subject;
  /// Returns case number i; empty: generate_case(mix, seed, i, scope_of(subject)). Called from
  /// all threads concurrently.
  std::function<Case(std::uint64_t)> generate;
  /// Setting it ends the hunt early; findings so far are kept.
  const std::atomic<bool>* stop = nullptr;
  bool stopped() const { return stop != nullptr && stop->load(); }
  /// Called about ten times a second, from the thread that called hunt().
  std::function<void(const HuntProgress&)> progress;
  /// Called for the first violation of each law, as soon as it is seen, from one thread at a time.
  std::function<void(const ViolatingCase&)> found;
  ShrinkBudget shrink;
  /// Floors are checked in hunts of at least this many cases; smaller hunts say little about
  /// frequencies.
  std::uint64_t floors_from = 2000;
};

/// Cases that violate the same law, and shrink to the same model.
struct Finding {
  /// The violation of `smallest`.
  Violation violation;
  /// The first of these cases: its number, and the case as it was found.
  std::uint64_t index = 0;
  Case original;
  /// The smallest case found for which the same law is the first to be violated; in place of a law
  /// about events an earlier one may be, for bytes tell of wrong gradients even where numbers hide
  /// them.
  Case smallest;
  /// Number of cases that shrink to this one; for a known divergence, of all cases that show it.
  std::uint64_t count = 1;
  /// The entry of the profile that explains the violation.
  std::optional<std::size_t> known = std::nullopt;
};

/// Number of cases with each verdict.
using VerdictCounts = std::array<std::uint64_t, kVerdictCount>;
constexpr std::uint64_t count_of(const VerdictCounts& counts, Verdict verdict) {
  return counts[static_cast<std::size_t>(verdict)];
}
/// Cases of which the law could say something.
constexpr std::uint64_t judged_of(const VerdictCounts& counts) {
  return count_of(counts, Verdict::kept) + count_of(counts, Verdict::violated);
}

/// Number of cases that violate a law, by the position of the law and the entry of the profile that
/// explains the violation, or kUnexplained.
using ViolationCounts = std::map<std::pair<std::size_t, std::size_t>, std::uint64_t>;
inline constexpr std::size_t kUnexplained = SIZE_MAX;

/// Number of cases that a subject could not run, by what it said of them.
using Reasons = std::map<std::string, std::uint64_t>;

struct HuntResult {
  /// Of the subject.
  Versions versions;
  /// All of the cases 0 .. cases - 1 were judged. Without keep_going, a violating case is the last
  /// one.
  std::uint64_t cases = 0;
  /// Cases that have each feature.
  std::array<std::uint64_t, kFeatureCount> features{};
  /// Cases that the subject could not run, and why.
  std::uint64_t not_judged = 0;
  Reasons why_not_judged;
  /// In the order of laws().
  std::vector<VerdictCounts> verdicts;
  /// For each law they add up to the cases that violate it.
  ViolationCounts violated;
  /// Of the cases, without what was shrunk.
  DeviceWork device_work;
  /// By law: number of cases in which it was the first violated law.
  std::vector<std::uint64_t> first_violated;
  /// In the order of laws(), the most frequent of a law first. What the profile explains is not
  /// among them.
  std::vector<Finding> findings;
  /// By entry of the profile: number of cases that show it and no new violation.
  std::vector<std::uint64_t> known;
  /// By entry of the profile: the first case that would be a finding if the profile lacked it.
  std::vector<std::optional<std::uint64_t>> needed;
  /// With keep_going: one for each entry that some case showed.
  std::vector<Finding> known_findings;
  /// Reasons why a hunt without a violation proves nothing: no case was run, no law had anything to
  /// judge, or a feature stayed below its floor. One sentence each.
  std::vector<std::string> shortfalls;
  /// Sum over the cases of a hash of (index, both records): equal for equal cases on every
  /// machine, whatever the number of threads.
  std::uint64_t record_hash = 0;
  /// Without shrinking. Of these, so many passed until the first subject was ready.
  double seconds = 0;
  double start_seconds = 0;
  /// Of the cases: judged by an earlier process.
  std::uint64_t cases_before = 0;
  /// Stopped before all cases were judged, or before all violating cases were shrunk.
  bool interrupted = false;
  /// The error that ended the hunt after something had been found; before that, it would have been
  /// thrown.
  std::string error;

  bool passed() const { return findings.empty() && shortfalls.empty() && error.empty(); }
  /// Cases that violated a law.
  std::uint64_t violations() const;
  double cases_per_second() const {
    return seconds > 0 ? static_cast<double>(cases - cases_before) / seconds : 0;
  }
};

/// Judges cases 0, 1, 2, ... until a limit, the stop flag or the first violation (unless
/// keep_going), and shrinks violating cases. Memory does not grow with the number of cases. Apart
/// from times and device_work, the result is a function of options and number of cases, not of
/// `jobs` (as long as shrinking stays within its time). An exception of make_subject is passed on;
/// one of a run violates the law `survives`.
HuntResult hunt(const HuntOptions& options);

/// The result of a hunt of which `total` is known: shrinks what was found, and checks the floors.
/// What hunt() ends with, so that parts which were hunted anywhere come to the same.
HuntResult conclude(const HuntOptions& options, const Tally& total);

}  // namespace rematch
