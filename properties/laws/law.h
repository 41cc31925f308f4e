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
#include "properties/forecast/site.h"
#include "properties/layers/enum_set.h"
#include "properties/record/observable.h"
#include "properties/record/record.h"

namespace rematch {

struct Reference;
struct SlopeSamples;

/// Extra runs that only some laws need.
enum class ExtraRun : std::uint8_t {
  /// The checkpointed run once more: of a subject whose runs may vary, or of a foreign one.
  repeat,
  layers,  ///< Every layer run alone, on the host and on the subject's device.
  slope,   ///< Runs with displaced parameters and inputs.
  /// The plain run on the reference engine in float64: of foreign subjects.
  reference,
};
using ExtraRuns = EnumSet<ExtraRun, 4>;

/// Everything gathered about one case (properties/hunt/gather.h); the input of the laws. `plain` is
/// the record of the reference run (without checkpointing, with forecast.frozen_layers detached),
/// `checkpointed` the record of the run under the plan.
struct Evidence {
  const Case& c;
  const Geometry& geometry;
  const Forecast& forecast;
  /// Observables that the subject records. All other fields of its records are meaningless.
  Observables observed;
  const Record& plain;
  const Record& checkpointed;
  /// nullptr: there was no such run.
  const Record* repeat = nullptr;
  /// Beside `repeat`, where a violation is to be told from noise.
  const Record* plain_repeat = nullptr;
  const Record* layers = nullptr;
  const SlopeSamples* slope = nullptr;
  const Reference* reference = nullptr;
  /// Declaration::rounds_differently.
  bool rounds_differently = false;
  /// Gradients, and what follows from them, may be sums in another order
  /// (Declaration::whole_segments); where their bits differ, they are compared as if they were
  /// rounded differently.
  bool sums_differently = false;
  /// Set if a run threw an exception: "checkpointed run: exception: ...". The records are then
  /// unusable.
  std::optional<std::string> crash = std::nullopt;

  bool failed() const { return crash || plain.error || checkpointed.error; }
};

struct Violation {
  std::string_view law;
  std::string place;  ///< "step 0, parameter 2 (layer 3 linear weight), element 17".
  std::string expected;
  std::string got;
  /// The largest difference of two elements in all arrays that a law compares,
  /// relative to the largest magnitude that the expected array has, or to 2^-10 where all of it is
  /// smaller. 0 where only signs of zeros or the bits of a NaN differ, infinity where one of the
  /// two is no number.
  std::optional<double> distance = std::nullopt;
  /// Bytes beyond those that there were if segments dropped nothing: what the plain run has, with
  /// the inputs of segments and what policies may keep. 0 or less: no more than that. Absent: no
  /// bytes.
  std::optional<std::int64_t> beyond_undropped = std::nullopt;
  /// All arrays that differ, of a law that compares values, or all layers that it is about. Empty:
  /// `place` alone says where.
  std::vector<Site> sites = {};
  /// `distance` of each of the sites alone. Empty: the one for all.
  std::vector<double> distances = {};
};

/// What laws are about. Each law belongs to one; a page of implementations has a column
/// for each.
enum class Topic : std::uint8_t {
  numbers,
  randomness,
  state,
  gradient_flow,
  recomputation,
  memory,
  errors,
  survival,
  own,  ///< A statement of the subject that no other topic covers.
};
inline constexpr std::size_t kTopicCount = static_cast<std::size_t>(Topic::own) + 1;
/// "numbers", "masks and random state", "state", "absent gradients and hooks", "recomputation",
/// "memory", "errors and failures", "survives", "its own statements".
std::string_view to_string(Topic topic);

/// A predicate over evidence: a pure function that does not know where the case came from. A law is
/// applied only to evidence that contains what the law reads. It is not applied to evidence that
/// failed(), unless the law judges failures.
struct Law {
  std::string_view name;       ///< "parameter-gradients"
  std::string_view statement;  ///< One sentence in the present tense.
  std::string_view harm;       ///< Harm that a violation does to a training run.
  Topic topic;
  std::optional<Violation> (*check)(const Evidence&);
  Observables reads;
  ExtraRuns extra_runs = {};
  /// Whether this law has anything to judge in the case; nullptr: always.
  bool (*applies)(const Evidence&) = nullptr;
  bool judges_failures = false;
  /// Compares values by compare_values(), which needs the reference where the subject rounds
  /// differently in the two runs.
  bool compares_values = false;
  /// Judges few cases by design: that it judged few says nothing of a subject.
  bool is_sampled = false;
};

/// All laws, in the order of judgement: causes before consequences.
std::span<const Law> laws();

/// Returns nullptr if no law has this name.
const Law* find_law(std::string_view name);
/// Position of `law` in laws().
std::size_t index_of(const Law& law);

inline constexpr std::size_t kMaxLaws = 64;

/// A set of laws, by their position in laws().
using LawSet = std::bitset<kMaxLaws>;
LawSet all_laws();
/// Throws std::invalid_argument for an unknown name.
LawSet laws_named(std::initializer_list<std::string_view> names);
/// The laws that judge failures: every run returns a record, and no run ends in an error.
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

/// The result of judge() for one case.
struct Verdicts {
  /// By position in laws(); not_applicable for laws that were not asked for.
  std::array<Verdict, kMaxLaws> by_law;
  /// In the order of laws(), so that the first is closest to the cause.
  std::vector<Violation> violations;

  bool kept() const { return violations.empty(); }
  /// The first violation, which names the finding; nullptr if all laws are kept.
  const Violation* first() const { return violations.empty() ? nullptr : &violations.front(); }
  std::size_t count(Verdict verdict) const;
};

/// Judges the evidence by each law in `asked`. If a law throws, that counts as a violation of it.
Verdicts judge(const Evidence& evidence, const LawSet& asked = all_laws());

}  // namespace rematch
