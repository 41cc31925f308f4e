#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/forecast/forecast.h"
#include "properties/layers/enum_set.h"
#include "properties/record/observable.h"
#include "properties/record/record.h"

namespace rematch {

struct SlopeSamples;

/// Runs that only some laws ask for.
enum class Extra : std::uint8_t {
  repeat,  ///< The checkpointed run once more, on a subject whose runs may vary.
  layers,  ///< Every layer by itself, on the host and on the subject's device.
  slope,   ///< Displaced runs around the case.
};
using Extras = EnumSet<Extra, 3>;

/// All that was gathered of one case (properties/hunt/gather.h): what laws may look at. `plain` is
/// the reference run (plain, with forecast.frozen_layers detached); `checkpointed` the run under
/// the plan.
struct Evidence {
  const Case& c;
  const Geometry& geometry;
  const Forecast& forecast;
  /// What the subject's records show. The rest of them means nothing.
  Observables observed;
  const Record& plain;
  const Record& checkpointed;
  /// nullptr: the run was not made.
  const Record* repeat = nullptr;
  const Record* layers = nullptr;
  const SlopeSamples* slope = nullptr;
  /// Set when the subject gave no record: "checkpointed run: exception: ...". The records are then
  /// of no use.
  std::optional<std::string> crash = std::nullopt;

  bool failed() const { return crash || plain.error || checkpointed.error; }
};

struct Violation {
  std::string_view law;
  std::string place;  ///< "step 0, parameter 2 (layer 3 linear weight), element 17".
  std::string expected;
  std::string got;
};

/// A predicate over evidence. Laws are pure functions and know nothing of how the case came about.
/// They are asked only of evidence that has what they read, and that has not failed() unless they
/// judge failures.
struct Law {
  std::string_view name;       ///< "parameter-gradients"
  std::string_view statement;  ///< One sentence in the present tense.
  std::optional<Violation> (*check)(const Evidence&);
  Observables reads;
  Extras extras = {};
  /// Whether the case has anything to judge; nullptr: every case has.
  bool (*applies)(const Evidence&) = nullptr;
  bool judges_failures = false;
};

/// All laws, in the order in which they are judged (causes before consequences).
std::span<const Law> laws();

/// nullptr when there is none of that name.
const Law* find_law(std::string_view name);
/// Position of a law of laws().
std::size_t index_of(const Law& law);

inline constexpr std::size_t kMaxLaws = 64;

/// A set of laws, by their position in laws().
using LawSet = std::bitset<kMaxLaws>;
LawSet all_laws();
/// Throws std::invalid_argument when there is no law of a name.
LawSet laws_named(std::initializer_list<std::string_view> names);
/// Those that judge failures: that a run ends in a record, and in no error.
LawSet failure_laws();

enum class Verdict : std::uint8_t {
  kept,
  violated,
  not_applicable,  ///< The case has nothing to judge.
  not_observed,    ///< The subject does not record what the law reads.
};
inline constexpr std::size_t kVerdictCount = 4;
/// "kept", "violated", "n/a", "not observed".
std::string_view to_string(Verdict verdict);

/// What judge() says of one case.
struct Verdicts {
  /// By position in laws(); laws that were not asked are not applicable.
  std::array<Verdict, kMaxLaws> by_law;
  /// In the order of laws(): the first is the one nearest to the cause.
  std::vector<Violation> violations;

  bool kept() const { return violations.empty(); }
  /// The first violation, by which the case is named; nullptr when all laws are kept.
  const Violation* first() const { return violations.empty() ? nullptr : &violations.front(); }
  std::size_t count(Verdict verdict) const;
};

/// Judges the evidence by each of `asked`. An exception of a law counts as its violation.
Verdicts judge(const Evidence& evidence, const LawSet& asked = all_laws());

}  // namespace rematch
