#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "properties/hunt/hunt_spec.h"
#include "properties/hunt/schedule.h"
#include "properties/hunt/tally.h"

namespace rematch {

/// A file of results is JSON, a line for each entry:
///   {"results": 4, "shard": 2, "of": 4, "hunt": {...}}
///   {"tally": {...}}      what came of the cases that follow, about one line a second
///   {"done": true}
/// `hunt` decides every case and verdict, so it is equal in all parts. Lines are only ever
/// appended, and a last line that was cut short counts for nothing: a process can be killed at any
/// moment, and all but the last second's cases are there.
struct Results {
  /// JSON on one line.
  std::string hunt;
  Shard shard;
  /// The tally of the first cases of the part.
  Tally total;
  bool done = false;
};

/// Throws std::invalid_argument that names the file, its line, what was expected and what came.
Results read_results(const std::filesystem::path& file, const HuntOptions& options);
/// The `hunt` of a file of results.
std::string hunt_of_results(const std::filesystem::path& file);

/// Adds up all parts of this hunt. Throws std::invalid_argument that names every part that is
/// missing, there twice or not done, and files of other hunts.
Tally merge_results(const std::vector<std::filesystem::path>& files, const std::string& hunt,
                    const HuntOptions& options);

/// Writes the results of the part that `options` asks for, while it is hunted.
class ResultsWriter {
 public:
  /// Creates the file; if it is there already, goes on behind its last line, or throws
  /// std::invalid_argument if that is not asked for, or if it is of another hunt or part, or being
  /// written by another process. Throws std::runtime_error, with the system's reason, where it
  /// cannot be written, as all of this does.
  ResultsWriter(std::filesystem::path file, const std::string& hunt, const HuntOptions& options,
                bool resume);
  ~ResultsWriter();
  ResultsWriter(const ResultsWriter&) = delete;
  ResultsWriter& operator=(const ResultsWriter&) = delete;

  /// The results that the file had.
  const Results& before() const { return before_; }
  /// Adds what came of the cases that follow. Violations are written at once. Once something could
  /// not be written, nothing is any more, so that no case is missing before others.
  void add(const Tally& tally);
  /// Writes what is left; `done`: the part is.
  void finish(bool done);

 private:
  void write_pending();
  void append(const std::string& line);

  std::filesystem::path file_;
  int descriptor_ = -1;
  std::size_t kept_per_law_;
  Results before_;
  Tally pending_;
  bool failed_ = false;
  std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
};

}  // namespace rematch
