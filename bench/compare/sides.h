#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/compare/result_file.h"

namespace rematch::compare {

/// Pairs beyond this are an error: the intervals take memory of the order of their square.
inline constexpr std::size_t kMaxPairs = 2000;

/// The runs of one revision.
struct Side {
  std::vector<ResultFile> files;
  std::string commit;      ///< Of all files; empty when they do not say.
  std::string label = {};  ///< What the reader calls it; empty: its commit.
  bool dirty = false;
};

/// A field in which a file differs from the first file of the base.
struct FingerprintDifference {
  std::string field;
  std::string expected;  ///< Empty: the field was not there.
  std::string got;
  std::string expected_file;
  std::string got_file;
};

/// Both sides of a comparison, and which file of one belongs to which file of the other.
struct Sides {
  Side base;
  Side head;
  /// Indices of files that ran as neighbours.
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  /// One file on each side: their repetitions are the pairs.
  bool by_repetition = false;
  /// Where fingerprints differ, each field once. Times may be compared when there is none.
  std::vector<FingerprintDifference> differences;
};

/// Reads both sides. Two folders are paired by the names of their files, where a file may lack a
/// partner; all else is paired in the order given. Throws InputError for unreadable files, for
/// lists of unequal length, for a side whose files come from several commits, for more than
/// kMaxPairs pairs, and when no file has a benchmark.
Sides read_sides(const std::vector<std::string>& base, const std::vector<std::string>& head);

/// Pairs files already read, in their order. Throws as read_sides() does.
Sides pair_sides(std::vector<ResultFile> base, std::vector<ResultFile> head);

/// automatic: see choose_clock().
enum class Clock { real, cpu, automatic };

/// CPU time when both sides ran one thread on the CPU, and in most pairs neither process had a core
/// for 97 % of its time: then real time measures the other processes. Else real time, which alone
/// shows that a program waits. Exchanging the sides of any pair gives the same answer, so the
/// choice does not favour a verdict.
struct ClockChoice {
  Clock clock = Clock::real;
  double share =
      1;  ///< The median over pairs of CPU time over real time, the larger of both sides.
};
ClockChoice choose_clock(const Sides& sides);

/// The time of `name` in `head` over that in `base` for every pair that has both, as natural
/// logarithms; the time of a file is the median of its repetitions.
std::vector<double> log_ratios(const Sides& sides, std::string_view name, Clock clock);

/// The median over the files of a side of the medians of their repetitions, in nanoseconds; none
/// when no repetition ran.
std::optional<double> median_time(const Side& side, std::string_view name, Clock clock);

/// The median; of an even number of values the mean of the middle two. `values` is not empty.
double median(std::vector<double> values);

}  // namespace rematch::compare
