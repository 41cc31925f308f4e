#include "properties/cli/saved_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "properties/cli/run_progress.h"
#include "properties/hunt/lost_worker.h"
#include "properties/hunt/regressions.h"
#include "properties/hunt/tally.h"
#include "properties/hunt/worker_process.h"

namespace rematch::cli {
namespace {

struct SavedCase {
  std::filesystem::path file;
  Case c;
  std::string name() const { return "saved case " + file.filename().string(); }
};

/// The folders of regressions: the one that comes with the program, and those that were named.
std::vector<std::filesystem::path> regression_folders(const CheckArguments& a) {
  std::vector<std::filesystem::path> folders;
  if (!a.no_regressions) {
    if (const auto built_in = default_regressions(executable())) folders.push_back(*built_in);
  }
  for (const std::string& named : a.regressions) {
    std::error_code ignored;
    const bool is_there =
        std::any_of(folders.begin(), folders.end(), [&](const std::filesystem::path& folder) {
          return std::filesystem::equivalent(folder, named, ignored);
        });
    if (!is_there) folders.emplace_back(named);
  }
  return folders;
}

/// The regressions that the subject implements.
void load_regressions(const CheckArguments& a, const Scope& scope, CheckOutcome& outcome,
                      std::vector<SavedCase>& saved) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& folder : regression_folders(a)) {
    try {
      for (std::filesystem::path& file : regression_files(folder)) files.push_back(std::move(file));
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("--regressions: {}", error.what()));
    }
  }
  for (const std::filesystem::path& file : files) {
    try {
      const Case c = load_case(file);
      if (lacking(scope, c).empty()) saved.push_back({file, c});
    } catch (const std::invalid_argument& error) {
      outcome.errors.emplace_back(error.what());
    }
  }
}

void count(const Tally& tally, SavedCases& saved) {
  saved.verdicts.resize(laws().size());
  for (std::size_t i = 0; i < saved.verdicts.size(); ++i) {
    for (std::size_t v = 0; v < kVerdictCount; ++v) saved.verdicts[i][v] += tally.verdicts[i][v];
  }
}

/// Judges cases one after another with one worker, or with another one where that is lost.
class Judging {
 public:
  Judging(const CheckArguments& a, const HuntOptions& o, std::unique_ptr<Worker> worker,
          CheckOutcome& outcome)
      : a_(a), o_(o), worker_(std::move(worker)), outcome_(outcome), progress_(a.quiet || a.json) {}

  /// Returns whether the next case is to be judged.
  bool judge(const SavedCase& saved) {
    progress_.note(saved.name());
    ++outcome_.saved.judged;
    if (!worker_) worker_ = restart_worker(o_);
    try {
      const Tally tally = worker_->judge(0, saved.c);
      count(tally, outcome_.saved);
      outcome_.saved.not_judged += tally.not_judged;
      if (tally.violating.empty()) return true;
      add(saved, shrunk(saved, tally.violating.front()));
    } catch (const WorkerLost& lost) {
      if (o_.stopped()) return false;
      // Of what is lost nothing may be left when the case is tried.
      worker_.reset();
      const std::optional<Violation> violation = judge_alone(o_, 0, saved.c);
      if (!violation || !judges_survival(o_)) {
        outcome_.errors.push_back(fmt::format(
            "a worker was lost in {}, {}: {}", saved.name(),
            violation ? "but the law survives is left out" : "but not when it ran alone",
            lost.what()));
        return false;
      }
      add(saved, {*violation, 0, saved.c, saved.c});
    }
    return a_.keep_going;
  }

 private:
  Finding shrunk(const SavedCase& saved, const ViolatingCase& violating) {
    // Printed at once, so that the case can be replayed even if shrinking is interrupted.
    print_error(fmt::format("{} violates {}; shrinking it. To replay it unshrunk: {}\n",
                            saved.name(), violating.violation.law,
                            replay_line(a_.subject, saved.file)));
    progress_.note("shrinking " + saved.name());
    Finding as_it_was{violating.violation, violating.index, violating.c, violating.c};
    try {
      return worker_->shrink(violating);
    } catch (const WorkerLost& lost) {
      worker_.reset();
      if (!o_.stopped()) {
        outcome_.errors.push_back(fmt::format("{} was not shrunk: {}", saved.name(), lost.what()));
      }
      return as_it_was;
    } catch (const std::exception&) {
      if (!o_.stopped()) throw;
      return as_it_was;
    }
  }

  void add(const SavedCase& saved, const Finding& finding) {
    Report report = report_of(a_, o_.seed, finding, outcome_.hunt.versions);
    const bool is_smallest = finding.smallest == finding.original;
    report.saved_case = saved.file;
    report.file = is_smallest ? saved.file
                              : a_.save_folder() /
                                    file_name(a_.subject.name, finding, saved.file.stem().string());
    report.again = replay_line(a_.subject, report.file);
    report.unshrunk = is_smallest ? "" : replay_line(a_.subject, saved.file);
    add_report(std::move(report), outcome_.reports);
  }

  const CheckArguments& a_;
  const HuntOptions& o_;
  std::unique_ptr<Worker> worker_;
  CheckOutcome& outcome_;
  RunProgress progress_;
};

}  // namespace

Report report_of(const CheckArguments& a, std::uint64_t seed, const Finding& f,
                 const Versions& versions) {
  Report report{f.violation, f.smallest, f.count,
                a.save_folder() / file_name(a.subject.name, f, seed)};
  report.again = replay_line(a.subject, report.file);
  report.unshrunk = numbered_line(a, seed, f.index);
  report.versions = versions;
  report.found_with = a.subject.words();
  return report;
}

void judge_saved_cases(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome) {
  if (a.no_regressions && a.regressions.empty()) return;
  using Clock = std::chrono::steady_clock;
  std::unique_ptr<Worker> worker = make_worker(o);
  outcome.hunt.versions = worker->versions();
  std::vector<SavedCase> saved;
  load_regressions(a, worker->scope(), outcome, saved);
  const Clock::time_point begin = Clock::now();
  Judging judging(a, o, std::move(worker), outcome);
  for (const SavedCase& s : saved) {
    if (o.stopped() || !judging.judge(s)) break;
  }
  outcome.saved.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
}

void save_known(const CheckArguments& a, const HuntOptions& o, const HuntResult& result) {
  if (a.save.empty() || !a.keep_going) return;
  for (const Finding& f : result.known_findings) {
    save_case(f.smallest, known_file(a, o.profile.entries()[*f.known].id), a.subject.words());
  }
}

}  // namespace rematch::cli
