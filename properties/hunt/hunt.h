#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/generate/features.h"
#include "properties/generate/mix.h"
#include "properties/generate/shrink.h"
#include "properties/laws/law.h"
#include "properties/subjects/subject.h"

namespace rematch {

/// Named in place of a law when a run or a law threw instead of giving an answer.
inline constexpr std::string_view kNoAnswer = "gives-an-answer";

struct HuntProgress {
  std::uint64_t cases = 0;
  double seconds = 0;
  /// The hunt found a failing case and is shrinking it.
  bool shrinking = false;
};

struct HuntOptions {
  Mix mix = Mix::wide;
  std::uint64_t seed = 1;
  /// The hunt ends at whichever limit comes first; with neither, only `stop` or a failure ends it.
  std::optional<std::uint64_t> cases;
  std::optional<double> seconds;
  /// Threads, at least 1. The result does not depend on their number.
  int jobs = 1;
  /// Judge by this law alone; nullptr: by all.
  const Law* only = nullptr;
  /// With `only`: a run that fails says nothing of that law, and is passed over.
  bool pass_over_failures = false;
  /// Called once in each thread.
  std::function<std::unique_ptr<Subject>()> make_subject;
  /// Case number i; empty: generate_case(mix, seed, i). Called from all threads at once.
  std::function<Case(std::uint64_t)> generate;
  /// Setting it ends the hunt early; what was found is kept.
  const std::atomic<bool>* stop = nullptr;
  /// Called about ten times a second, from the thread that called hunt().
  std::function<void(const HuntProgress&)> progress;
  ShrinkBudget shrink;
  /// Floors are demanded of hunts of at least this many cases: fewer say little of a frequency.
  std::uint64_t floors_from = 2000;
};

struct HuntFailure {
  std::uint64_t index = 0;
  Case original;
  /// The smallest case found for which the same law is the first to break; in place of a law about
  /// events an earlier one may be, for bytes tell of wrong gradients even where numbers hide them.
  Case smallest;
  /// The breach of `smallest`.
  Breach breach;
};

struct HuntResult {
  /// Cases 0 .. cases - 1 were judged, all of them; a failing one is the last.
  std::uint64_t cases = 0;
  /// Cases that have each feature.
  std::array<std::uint64_t, kFeatureCount> features{};
  /// How often each law was checked, in the order of laws().
  std::vector<std::uint64_t> checks;
  /// The failing case of lowest index.
  std::optional<HuntFailure> failure;
  /// Why a hunt without a breach still proves nothing: no case was run, or a feature stayed below
  /// its promised frequency. One sentence each.
  std::vector<std::string> shortfalls;
  /// Sum over the cases of a hash of (index, both records): equal for equal cases on every
  /// machine, whatever the number of threads.
  std::uint64_t record_hash = 0;
  double seconds = 0;
  bool interrupted = false;

  bool passed() const { return !failure && shortfalls.empty(); }
  double cases_per_second() const { return seconds > 0 ? static_cast<double>(cases) / seconds : 0; }
};

/// Judges cases 0, 1, 2, ... until a limit, the stop flag or the first failure, and shrinks that.
/// Memory does not grow with the number of cases. Apart from the times, the result is a function
/// of the options and the number of cases, not of `jobs`. An exception of make_subject is passed
/// on; one of a run or a law is a breach of kNoAnswer.
HuntResult hunt(const HuntOptions& options);

/// judge(), with an exception (but CaseTooLarge) turned into a breach of kNoAnswer. The bench holds
/// records of this case only.
Verdict judge_or_catch(const Case& c, Subject& subject, Bench& bench, const Law* only = nullptr);

}  // namespace rematch
