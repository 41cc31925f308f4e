#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/sides.h"

namespace rematch::compare {

struct Options {
  /// A time that differs by less than this share counts as the same, in either direction: ratios
  /// in [1 / (1 + min_effect), 1 + min_effect].
  double min_effect = 0.02;
  /// The probability that a comparison of a program with itself has a false FASTER or SLOWER,
  /// over all its benchmarks and all its looks together.
  double alpha = 0.01;
  /// The level of the interval that is shown, and that decides SAME, for each benchmark by itself.
  double level = 0.95;
  /// How often these measurements are judged at most, with more pairs each time. Alpha is divided
  /// by it, so that looking again costs nothing that was promised.
  int looks = 1;
  /// A benchmark or an exact counter that the new side lacks is no regression.
  bool allow_missing = false;
  /// False: only exact counters are compared.
  bool judge_time = true;
  Clock clock = Clock::automatic;
  /// Only benchmarks whose name this regular expression (ECMAScript) finds a match in.
  std::string filter = {};
};

enum class TimeVerdict {
  same,         ///< The interval lies within the minimum effect.
  faster,       ///< Below it, certain enough among all the benchmarks of the run.
  slower,       ///< Beyond it, certain enough among all the benchmarks of the run.
  unsure,       ///< None of these.
  not_compared  ///< Fingerprints differ, or times are not asked for, or it was counted only.
};

struct TimeResult {
  TimeVerdict verdict = TimeVerdict::not_compared;
  int pairs = 0;
  std::optional<double> base_ns;
  std::optional<double> head_ns;
  /// New over base: the Hodges-Lehmann estimate and its interval, (0, infinity) when there are too
  /// few pairs. Unset without a pair.
  std::optional<double> ratio;
  double low = 0;
  double high = 0;
  /// Holm-adjusted over the run, times the number of looks: slower than the minimum effect allows.
  double p_slower = 1;
  double p_faster = 1;
};

enum class CounterChange {
  same,
  rose,
  fell,
  unsteady,  ///< The new side disagrees with itself, or the base does.
  missing,   ///< Only the base has it.
  added      ///< Only the new side has it.
};

struct CounterResult {
  std::string name;
  CounterChange change = CounterChange::same;
  /// The highest value over all repetitions, and whether there was another one.
  std::optional<std::int64_t> base;
  std::optional<std::int64_t> head;
  bool base_varies = false;
  bool head_varies = false;
};

/// A counter that is shown and never judged: medians.
struct OtherCounter {
  std::string name;
  std::optional<double> base;
  std::optional<double> head;
};

enum class Presence { both, base_only, head_only, head_failed, base_failed, both_failed };

struct BenchmarkResult {
  std::string name;
  Presence presence = Presence::both;
  std::string error;  ///< What a side said that failed.
  TimeResult time;
  std::vector<CounterResult> counters;
  std::vector<OtherCounter> other;
};

/// One thing that a person should read, in words; regressions come first.
struct Finding {
  enum class Kind { regression, improvement, note };
  Kind kind = Kind::note;
  std::string text;
};

struct Comparison {
  Options options;  ///< With the clock that was chosen.
  Sides sides;
  std::vector<BenchmarkResult> benchmarks;  ///< In the order in which the base has them.
  std::vector<Finding> findings;
  /// What limits the comparison as a whole, in words.
  std::vector<std::string> notes;
  /// The fewest pairs with which a change of time can be found in this run.
  int fewest_pairs = 0;
  int most_pairs = 0;  ///< Of any benchmark.

  int count(TimeVerdict verdict) const;
  /// Of benchmarks that were counted and not timed, and of those whose times were judged.
  int counted_only() const;
  int judged() const;
  int count(Finding::Kind kind) const;
  bool time_refused() const { return options.judge_time && !sides.differences.empty(); }
  /// 0 no regression, 1 regression, 3 neither, but a time could not be judged.
  int exit_status() const;
};

/// Compares. Deterministic: the same files give the same result. Throws std::regex_error for a
/// filter that is none, and InputError when it leaves no benchmark.
Comparison compare(Sides sides, const Options& options);

/// Whether every exact counter is the same on both sides.
bool counts_agree(const BenchmarkResult& benchmark);

/// "SAME", "FASTER", "SLOWER", "UNSURE", "-".
std::string_view to_string(TimeVerdict verdict);

}  // namespace rematch::compare
