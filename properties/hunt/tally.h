#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "properties/case/features.h"
#include "properties/hunt/finding.h"
#include "properties/hunt/structures.h"
#include "properties/laws/law.h"
#include "properties/record/subject.h"

namespace rematch {

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

/// The sum of the verdicts on some cases of a hunt. Tallies of cases that follow one another
/// add up to that of all, whichever thread, process or machine judged them.
struct Tally {
  std::uint64_t cases = 0;
  /// Cases that the subject could not run, and why.
  std::uint64_t not_judged = 0;
  Reasons why_not_judged;
  /// Structures of the cases that were judged.
  Structures structures;
  /// Cases that have each feature.
  std::array<std::uint64_t, kFeatureCount> features{};
  /// In the order of laws().
  std::vector<VerdictCounts> verdicts;
  /// By law: number of cases in which it was the first violated law.
  std::vector<std::uint64_t> first_violated;
  /// For each law they add up to the cases that violate it.
  ViolationCounts violated;
  /// Sum over the cases of a hash of (index, both records): equal for equal cases on every
  /// machine, whatever the number of threads.
  std::uint64_t record_hash = 0;
  /// The same of what has equal bits on every device (Record::exact_hash).
  std::uint64_t exact_hash = 0;
  DeviceWork device_work;
  /// In the order of the cases; of each law the first so many that are to be shrunk.
  std::vector<ViolatingCase> violating;
  /// By entry of the profile: cases that show it and no new violation, and the first of them.
  std::map<std::size_t, std::uint64_t> known;
  std::vector<ViolatingCase> known_cases;
  /// Cases that show nothing new, and an entry that is promised, or one that is not.
  std::uint64_t cases_with_bug = 0;
  std::uint64_t cases_with_limit = 0;
  /// By entry of the profile: the first case with a violation that no other entry explains.
  std::map<std::size_t, std::uint64_t> needed;

  Tally();
  /// Cases that violated a law.
  std::uint64_t violations() const;
  /// Cases that show this entry of the profile and nothing new.
  std::uint64_t known_of(std::size_t entry) const;
  /// Adds what came of the cases that follow. At most `kept_per_law` violating cases of each law
  /// are kept.
  void add(Tally next, std::size_t kept_per_law);
};

}  // namespace rematch
