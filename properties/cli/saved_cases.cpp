#include "properties/cli/saved_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "properties/cli/run_progress.h"
#include "properties/hunt/corpus.h"
#include "properties/hunt/lost_worker.h"
#include "properties/hunt/regressions.h"
#include "properties/hunt/tally.h"
#include "properties/hunt/worker.h"

namespace rematch::cli {
namespace {

struct SavedCase {
  std::filesystem::path file;
  Case c;
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

/// Of so many cases of a hunt, the first, it is known what they reach: they have all pairs, in two
/// seconds; more would add hours to a hunt of 10^9 cases.
constexpr std::uint64_t kCasesForCorpus = 100'000;

/// What of the corpus the subject is to run. The folder is made if it is not there.
void load_corpus_cases(const CheckArguments& a, const Scope& scope, CheckOutcome& outcome,
                       std::vector<SavedCase>& saved) {
  if (a.corpus.empty()) return;
  std::error_code error;
  if (std::filesystem::create_directory(a.corpus, error)) {
    print_error(fmt::format("rematch: --corpus: {} was not there and is empty\n", a.corpus));
  }
  std::vector<std::string> unreadable;
  Corpus corpus;
  try {
    corpus = load_corpus(a.corpus, unreadable);
  } catch (const std::invalid_argument& wrong) {
    throw UsageError(fmt::format("--corpus: {}", wrong.what()));
  }
  // One of another release is none of this one's errors.
  for (const std::string& why : unreadable) print_error("rematch: not run: " + why + "\n");
  const Corpus implemented = within(corpus, scope);
  const Corpus cases = to_run(implemented);
  for (const CorpusCase& c : cases)
    saved.push_back({a.corpus / std::filesystem::path(c.name), c.c});
  outcome.corpus = {scope,
                    cases.size(),
                    corpus.size() + unreadable.size(),
                    corpus.size() - implemented.size(),
                    unreadable.size(),
                    pairs_of(implemented).size()};
}

}  // namespace

std::string replay_line(const CheckArguments& a, const std::filesystem::path& file) {
  return again("replay" + a.subject.options() + " " + shell_word(file.lexically_normal().string()));
}

void judge_saved_cases(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome) {
  if (a.no_regressions && a.corpus.empty()) return;
  std::unique_ptr<Worker> worker = make_worker(o);
  outcome.hunt.versions = worker->versions();
  std::vector<SavedCase> saved;
  load_regressions(a, worker->scope(), outcome, saved);
  load_corpus_cases(a, worker->scope(), outcome, saved);
  RunProgress progress(a.quiet || a.json);
  for (const auto& [file, c] : saved) {
    if (o.stopped()) return;
    progress.note("saved case " + file.filename().string());
    ++outcome.saved_cases;
    std::optional<Violation> violation;
    if (!worker) worker = worker_again(o);
    try {
      const Tally tally = worker->judge(0, c);
      outcome.saved_not_judged += tally.not_judged;
      if (!tally.violating.empty()) violation = tally.violating.front().violation;
    } catch (const WorkerLost& lost) {
      if (o.stopped()) return;
      // Of what is lost nothing may be left when the case is tried.
      worker.reset();
      violation = lost_alone(o, 0, c);
      if (!violation || !judges_survival(o)) {
        outcome.errors.push_back(fmt::format(
            "a worker was lost in {}, {}: {}", file.filename().string(),
            violation ? "but the law survives is left out" : "but not when it ran alone",
            lost.what()));
        return;
      }
    }
    if (!violation) continue;
    outcome.reports.push_back(
        {*violation, c, 1, file, {}, true, replay_line(a, file), {}, outcome.hunt.versions});
    if (!a.keep_going) return;
  }
}

void add_to_corpus(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome) {
  if (a.corpus.empty()) return;
  Corpus found;
  for (const Report& report : outcome.reports) {
    if (!report.saved) found.push_back(broken_case(report.smallest, report.violation.law));
  }
  outcome.corpus.added += save_corpus(found, a.corpus);
  if (outcome.hunt.interrupted || outcome.hunt.cases == 0) return;
  const Scope& scope = outcome.corpus.scope;
  // As it is now: other hunts may have added to it.
  std::vector<std::string> ignored;
  const PairSet known = pairs_of(within(load_corpus(a.corpus, ignored), scope));
  const auto generate = [&](std::uint64_t index) { return case_of(o, scope, index); };
  const std::uint64_t cases = std::min(outcome.hunt.cases, kCasesForCorpus);
  const Corpus more = reaching_more(known, cases, generate, o.jobs);
  outcome.corpus.added += save_corpus(more, a.corpus);
}

}  // namespace rematch::cli
