#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "properties/record/subject.h"
#include "properties/subjects/answers.h"
#include "properties/subjects/array_file.h"

namespace rematch {

class ChildProcess;

/// How long a subject may take.
struct ProcessLimits {
  double start_seconds = 300;
  double run_seconds = 60;
  /// In place of run_seconds for a subject that compiles every new model (cases_per_shape).
  double compiling_run_seconds = 600;
  /// Setting it ends a run that is under way: run() then throws SubjectBroken.
  const std::atomic<bool>* stop = nullptr;
  bool stopped() const { return stop != nullptr && stop->load(); }
  /// One case in so many is repeated in a fresh process; 0: none is.
  std::uint64_t cases_per_fresh_repeat = 4096;
};

/// An implementation in another process, by the protocol of PROTOCOL.md. One process serves run
/// after run. A process that ends, gives no answer in time or answers nonsense is replaced by a
/// fresh one, in which the run is tried once more; either way run() throws what happened, which
/// violates the law `survives`.
class ProcessSubject final : public Subject {
 public:
  /// `command` is a line for the shell; messages call the subject `name`, or as the command where
  /// that is empty. Throws SubjectBroken when it does not say hello.
  explicit ProcessSubject(std::string command, ProcessLimits limits = {}, std::string name = "");
  ~ProcessSubject() override;

  const Declaration& declares() const override { return hello_.declaration; }
  bool wants_fresh_repeat() const override;
  bool facts(const Case& c, const Geometry& geometry, const Record& plain,
             Facts& facts) const override;
  std::string export_script(const Case& c, const Geometry& geometry,
                            std::string_view finding) override;
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override;

 private:
  void start();
  std::string_view exchange(const std::string& request, double seconds, std::string_view what);
  double run_seconds() const;
  ArrayFile* fresh_files();
  void run_once(const Case& c, const Geometry& geometry, const RunRequest& request, Record& record);

  std::string command_;
  std::string name_;
  ProcessLimits limits_;
  std::unique_ptr<ChildProcess> process_;
  Hello hello_;
  std::uint64_t next_id_ = 0;
  std::uint64_t cases_ = 0;
  /// The case that the process knows, and the record that it gave last.
  std::optional<Case> known_;
  std::optional<Record> before_;
  /// The large arrays of that case.
  ArrayFile large_;
};

}  // namespace rematch
