#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rematch::compare {

/// Counters that are exact: any difference is reported, a rise is a regression.
inline constexpr std::array<std::string_view, 8> kExactCounters{
    "peak_bytes", "saved_bytes",       "offloaded_bytes", "allocations",
    "layer_runs", "recomputed_layers", "flops",           "recomputed_flops"};

bool is_exact_counter(std::string_view name);
/// True for counters of bytes, which are shown with their unit.
bool counts_bytes(std::string_view name);

/// All repetitions of one benchmark in one file.
struct BenchmarkRun {
  std::string name;
  /// One entry per repetition that ran, in nanoseconds, in the order of the file.
  std::vector<double> real_ns;
  std::vector<double> cpu_ns;
  /// The exact counters, one value per repetition.
  std::map<std::string, std::vector<std::int64_t>> exact;
  /// All other counters, shown and never judged.
  std::map<std::string, std::vector<double>> other;
  /// What the program says of the run; rematch-bench: where the peak is. Of the first that has it.
  std::string label;
  /// What the program said when it gave up; empty when every repetition ran.
  std::string error;
};

/// What one run of a benchmark program wrote with --benchmark_out_format=json.
struct ResultFile {
  std::string path;
  std::string date;
  std::string commit;  ///< Empty when the file does not say.
  bool dirty = false;
  /// What must agree for times to be comparable: every "rematch_" field of the context apart from
  /// the commit. A file without any has Google Benchmark's host_name, num_cpus and
  /// library_build_type, and has_fingerprint is false.
  std::map<std::string, std::string> fingerprint;
  bool has_fingerprint = false;
  /// False: the context says that only counters are to be read ("rematch_times": "no").
  bool has_times = true;
  /// A file of timelines that belongs to this one, resolved against this file's folder; or empty.
  std::string timelines;
  std::vector<BenchmarkRun> benchmarks;

  const BenchmarkRun* find(std::string_view name) const;
};

/// Reads a result file. Aggregates are left out; "/real_time", "/manual_time" and "/repeats:N" are
/// dropped from the end of names. Throws InputError that names the file and the place for
/// everything that is not such a file: not JSON, another format version, a field that is missing or
/// of a wrong type, a time that is not positive, an exact counter that is not a whole number, a
/// repetition twice.
ResultFile read_result_file(const std::string& path);
/// The same for text already read; `path` stands in messages.
ResultFile result_from_text(std::string_view text, const std::string& path);

/// Files in the order given; a folder stands for its *.json in the order of their names.
/// Throws InputError for a folder without any.
std::vector<std::string> expand_folders(const std::vector<std::string>& paths);

}  // namespace rematch::compare
