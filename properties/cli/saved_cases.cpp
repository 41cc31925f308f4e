#include "properties/cli/saved_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "properties/cli/run_progress.h"
#include "properties/hunt/corpus.h"
#include "properties/hunt/findings.h"
#include "properties/hunt/lost_worker.h"
#include "properties/hunt/regressions.h"
#include "properties/hunt/tally.h"
#include "properties/hunt/worker_process.h"

namespace rematch::cli {
namespace {

/// A regression has a file; a case of the corpus has a number in the hunt instead.
struct SavedCase {
  std::filesystem::path file;
  Case c;
  std::optional<std::uint64_t> index = std::nullopt;
  std::string name() const {
    return index ? fmt::format("case {}", *index) : file.filename().string();
  }
};

/// The regressions that the subject implements.
void load_regressions(const CheckArguments& a, const Scope& scope, CheckOutcome& outcome,
                      std::vector<SavedCase>& saved) {
  if (a.no_regressions) return;
  std::optional<std::filesystem::path> directory = a.regressions;
  if (a.regressions.empty()) directory = default_regressions(executable());
  if (!directory) return;
  std::vector<std::filesystem::path> files;
  try {
    files = regression_files(*directory);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--regressions: {}", error.what()));
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

/// Cases of the hunt itself, which are judged before it.
void add_corpus(const HuntOptions& o, const Scope& scope, CheckOutcome& outcome,
                std::vector<SavedCase>& saved) {
  const auto generate = [&](std::uint64_t index) { return case_of(o, scope, index); };
  const Corpus corpus = corpus_of(kCasesForCorpus, generate, o.jobs);
  for (const CorpusCase& c : corpus) saved.push_back({{}, c.c, c.index});
  outcome.corpus.cases = corpus.size();
  outcome.corpus.pairs = pairs_of(corpus).size();
}

std::string replay_line(const CheckArguments& a, const std::filesystem::path& file) {
  return again("replay" + a.subject.options() + " " + shell_word(file.lexically_normal().string()));
}

}  // namespace

std::string numbered_line(const CheckArguments& a, std::uint64_t seed, std::uint64_t index) {
  return again(fmt::format("replay{} --mix {} --seed {} --case {}", a.subject.options(), a.mix,
                           seed, index));
}

Report report_of(const CheckArguments& a, std::uint64_t seed, const Finding& f,
                 const Versions& versions) {
  const std::filesystem::path file =
      std::filesystem::path(a.save) / file_name(a.subject.name, f, seed);
  Report report{f.violation,
                f.smallest,
                f.count,
                file,
                {},
                false,
                replay_line(a, file),
                numbered_line(a, seed, f.index),
                versions};
  reserve_file(report);
  return report;
}

void judge_saved_cases(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome) {
  if (a.no_regressions && !a.corpus) return;
  std::unique_ptr<Worker> worker = make_worker(o);
  outcome.hunt.versions = worker->versions();
  std::vector<SavedCase> saved;
  load_regressions(a, worker->scope(), outcome, saved);
  if (a.corpus) add_corpus(o, worker->scope(), outcome, saved);
  std::vector<ViolatingCase> to_shrink;
  const auto report = [&](const Finding& finding) {
    outcome.reports.push_back(report_of(a, o.seed, finding, outcome.hunt.versions));
  };
  RunProgress progress(a.quiet || a.json);
  for (const SavedCase& s : saved) {
    if (o.stopped()) return;
    progress.note("saved " + s.name());
    ++(s.index ? outcome.corpus.judged : outcome.saved_cases);
    const std::uint64_t index = s.index.value_or(0);
    std::optional<Violation> violation;
    if (!worker) worker = restart_worker(o);
    try {
      Tally tally = worker->judge(index, s.c);
      (s.index ? outcome.corpus.not_judged : outcome.saved_not_judged) += tally.not_judged;
      if (!tally.violating.empty()) {
        violation = tally.violating.front().violation;
        if (s.index) to_shrink.push_back(std::move(tally.violating.front()));
      }
    } catch (const WorkerLost& lost) {
      if (o.stopped()) return;
      // Of what is lost nothing may be left when the case is tried.
      worker.reset();
      violation = judge_alone(o, index, s.c);
      if (!violation || !judges_survival(o)) {
        outcome.errors.push_back(fmt::format(
            "a worker was lost in {}, {}: {}", s.name(),
            violation ? "but the law survives is left out" : "but not when it ran alone",
            lost.what()));
        return;
      }
      if (s.index) report(Finding{*violation, index, s.c, s.c});
    }
    if (!violation) continue;
    if (!s.index) {
      outcome.reports.push_back({*violation,
                                 s.c,
                                 1,
                                 s.file,
                                 {},
                                 true,
                                 replay_line(a, s.file),
                                 {},
                                 outcome.hunt.versions});
    }
    if (!a.keep_going) break;
  }
  if (to_shrink.empty()) return;
  worker.reset();
  progress.note("the shrinking of violating cases");
  std::string error;
  for (const Finding& f : shrink_all(
           o, to_shrink, [](std::size_t) {}, error))
    report(f);
  if (!error.empty()) outcome.errors.push_back(error);
}

}  // namespace rematch::cli
