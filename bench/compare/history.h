#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/change_point.h"
#include "bench/compare/comparison.h"
#include "properties/output/terminal.h"

namespace rematch::compare {

/// What a history keeps of one benchmark at one commit.
struct HistoryPoint {
  std::optional<double> real_ns;
  std::optional<double> cpu_ns;
  std::map<std::string, std::int64_t> exact;
};

struct HistoryEntry {
  std::string commit;
  std::string date;
  std::map<std::string, std::string> fingerprint;
  std::map<std::string, HistoryPoint> benchmarks;
};

/// One line of a history, without a newline: the medians over all files and their exact counters.
/// `commit` stands in for files that do not name theirs. Throws InputError for files of several
/// commits or machines, for changes that were not committed, and where no commit is known.
std::string history_line(std::vector<ResultFile> files, const std::string& commit);

/// Reads a file of such lines, one a commit in the order of the history; blank lines are left out.
/// Throws InputError that names the line.
std::vector<HistoryEntry> read_history(const std::string& path);

/// One benchmark's times over the commits that have it.
struct HistorySeries {
  std::string name;
  std::vector<std::size_t> entries;  ///< Indices into HistoryReport::entries.
  std::vector<double> ns;
  std::vector<LevelChange> changes;  ///< Of the logarithms; of at least the minimum effect.
};

struct CounterStep {
  std::string benchmark;
  std::string counter;
  std::size_t entry = 0;  ///< The first with the new value.
  std::int64_t before = 0;
  std::int64_t after = 0;
};

struct HistoryReport {
  Options options;
  /// Those whose fingerprint is that of the last one, from the commit asked for on.
  std::vector<HistoryEntry> entries;
  int left_out = 0;  ///< Entries with another fingerprint.
  std::vector<HistorySeries> series;
  std::vector<CounterStep> counters;
  std::vector<Finding> findings;

  /// 1 when a time or an exact counter has risen and still is higher, else 0.
  int exit_status() const;
};

/// Looks for changes in the history of every benchmark that its last entry has, at
/// options.alpha over all benchmarks and all tests of each together. `since` is the beginning of a
/// commit id: entries before the last one that it fits are left out, which accepts what happened
/// before. Throws InputError when there is no entry, or none that `since` fits.
HistoryReport examine_history(std::vector<HistoryEntry> entries, const std::string& since,
                              const Options& options);

/// "cifar/sqrt is slower by 4.1 % since commit 0123456789ab (12 commits): 12.1 ms, now 12.6 ms".
std::string change_sentence(const HistoryReport& report, const HistorySeries& series,
                            const LevelChange& change);

std::string history_text(const HistoryReport& report, int width, const cli::Paint& paint);
std::string history_json(const HistoryReport& report);
std::string history_markdown(const HistoryReport& report);
std::string history_headline(const HistoryReport& report);

}  // namespace rematch::compare
