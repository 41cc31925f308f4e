#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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
  /// The hunt is over, and this many of the violating cases are shrunk, of so many.
  std::size_t shrunk = 0;
  std::size_t to_shrink = 0;
};

/// A case of a hunt, and the first law that it violates.
struct ViolatingCase {
  std::uint64_t index = 0;
  Case c;
  Violation violation;
  /// The entry of the profile that explains it.
  std::optional<std::size_t> known = std::nullopt;
};

struct HuntOptions {
  Mix mix = Mix::wide;
  std::uint64_t seed = 1;
  /// The hunt ends at whichever limit comes first; with neither, only `stop` or a violation ends
  /// it.
  std::optional<std::uint64_t> cases;
  std::optional<double> seconds;
  /// Threads, at least 1. The result does not depend on their number.
  int jobs = 1;
  /// The laws to judge by. A hunt in which they had nothing to judge does not pass.
  LawSet laws = all_laws();
  /// Judged in any case, for a run that failed says nothing of other laws.
  LawSet failures = failure_laws();
  LawSet judged() const { return laws | failures; }
  /// What is known of the subject: violations that it explains are counted, and do not end the
  /// hunt.
  Profile profile;
  /// Goes on after a violation, and reports all of them.
  bool keep_going = false;
  /// With keep_going: of the cases that violate one law, only the first so many are shrunk.
  std::size_t shrunk_per_law = 100;
  /// Called once in each thread, and once for each that shrinks.
  std::function<std::unique_ptr<Subject>()> make_subject;
  /// Case number i; empty: generate_case(mix, seed, i, what the subject implements). Called from
  /// all threads at once.
  std::function<Case(std::uint64_t)> generate;
  /// Setting it ends the hunt early; what was found is kept.
  const std::atomic<bool>* stop = nullptr;
  /// Called about ten times a second, from the thread that called hunt().
  std::function<void(const HuntProgress&)> progress;
  /// Called for the first violation of each law, as soon as it is seen, from one thread at a time.
  std::function<void(const ViolatingCase&)> found;
  ShrinkBudget shrink;
  /// Floors are demanded of hunts of at least this many cases: fewer say little of a frequency.
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
  /// How many of the cases that were shrunk came to this; of a known divergence, all that showed it.
  std::uint64_t count = 1;
  /// The entry of the profile that explains it.
  std::optional<std::size_t> known = std::nullopt;
};

/// How often each verdict was given.
using VerdictCounts = std::array<std::uint64_t, kVerdictCount>;

struct HuntResult {
  /// Cases 0 .. cases - 1 were judged, all of them; unless the hunt kept going, a violating one is
  /// the last.
  std::uint64_t cases = 0;
  /// Cases that have each feature.
  std::array<std::uint64_t, kFeatureCount> features{};
  /// Cases that the subject could not run, and what it said of the first of them.
  std::uint64_t not_judged = 0;
  std::string why_not_judged;
  /// In the order of laws().
  std::vector<VerdictCounts> verdicts;
  /// By law: cases of which it was the first to be violated.
  std::vector<std::uint64_t> first_violated;
  /// In the order of laws(), the most frequent of a law first. What the profile explains is not
  /// among them.
  std::vector<Finding> findings;
  /// By entry of the profile: cases that showed it and nothing new.
  std::vector<std::uint64_t> known;
  /// One for each entry that was confirmed, if the hunt kept going.
  std::vector<Finding> known_findings;
  /// Why a hunt without a violation still proves nothing: no case was run, nothing was judged, or a
  /// feature stayed below its promised frequency. One sentence each.
  std::vector<std::string> shortfalls;
  /// Sum over the cases of a hash of (index, both records): equal for equal cases on every
  /// machine, whatever the number of threads.
  std::uint64_t record_hash = 0;
  double seconds = 0;
  /// Stopped before all cases were judged, or before all that violate were shrunk.
  bool interrupted = false;
  /// What ended the hunt after something was found, if anything did: it would have been thrown
  /// else.
  std::string error;

  bool passed() const { return findings.empty() && shortfalls.empty() && error.empty(); }
  /// Cases that violated a law.
  std::uint64_t violations() const;
  double cases_per_second() const { return seconds > 0 ? static_cast<double>(cases) / seconds : 0; }
};

/// Judges cases 0, 1, 2, ... until a limit, the stop flag or the first violation (unless told to
/// keep going), and shrinks what violates. Memory does not grow with the number of cases. Apart
/// from the times, the result is a function of the options and the number of cases, not of `jobs`
/// (as long as shrinking stays within its time). An exception of make_subject is passed on; one of
/// a run violates the law `survives`.
HuntResult hunt(const HuntOptions& options);

}  // namespace rematch
