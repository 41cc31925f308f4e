#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/build/build_info.h"
#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/cli/check_report.h"
#include "properties/cli/finding.h"
#include "properties/cli/junit.h"
#include "properties/cli/saved_cases.h"
#include "properties/hunt/hunt.h"
#include "properties/hunt/results.h"
#include "properties/hunt/tally.h"
#include "properties/output/terminal.h"
#include "properties/record/machine.h"

namespace rematch::cli {
namespace {

constexpr std::uint64_t kDefaultCases = 20000;

/// The hunt, with its results in a file where that is asked for; or what was hunted elsewhere.
HuntResult run(const CheckArguments& a, HuntOptions o, const std::optional<Tally>& merged) {
  if (merged) return finish_hunt(o, *merged);
  if (a.results.empty()) return hunt(o);
  ResultsWriter results(a.results, hunt_of(a, o), o, a.resume);
  o.before = &results.before().total;
  o.committed = [&](const Tally& tally) { results.add(tally); };
  try {
    HuntResult result = hunt(o);
    results.finish(!result.interrupted && result.error.empty());
    return result;
  } catch (...) {
    results.finish(false);
    throw;
  }
}

void hunt_cases(const CheckArguments& a, HuntOptions o, const std::optional<Tally>& merged,
                CheckOutcome& outcome) {
  StatusLine status(a.quiet || a.json);
  o.progress = [&](const HuntProgress& p) { show_progress(status, o, p); };
  // Printed at once, so that the case can be replayed even if shrinking is interrupted.
  o.found = [&](const ViolatingCase& found) {
    status.clear();
    print_error(fmt::format("case {} violates {}{}. To replay it unshrunk: {}\n", found.index,
                            found.violation.law, o.shard.of > 1 ? "" : "; shrinking it",
                            numbered_line(a, o.seed, found.index)));
  };
  outcome.hunt = run(a, o, merged);
  status.clear();
  if (!outcome.hunt.error.empty()) outcome.errors.push_back(outcome.hunt.error);
  for (const Finding& f : outcome.hunt.findings) {
    outcome.reports.push_back(report_of(a, o.seed, f, outcome.hunt.versions));
  }
}

/// What a part of a hunt, or one whose results are kept, cannot be combined with.
void check_results_options(const CheckArguments& a) {
  if (a.results.empty()) {
    if (!a.shard.empty()) throw UsageError("--shard needs --results, a file for what it finds");
    if (a.resume) throw UsageError("--resume needs --results, the file that it goes on with");
    return;
  }
  if (!a.shard.empty() && !a.junit.empty()) {
    throw UsageError("--junit is for `rematch merge`, which reports all parts");
  }
  if (!a.shard.empty() && a.corpus) {
    throw UsageError("--corpus is for `rematch merge`, which judges it once for all parts");
  }
  if (!a.duration.empty()) {
    throw UsageError("--results needs a fixed number of cases: give --cases instead of --for");
  }
  if (a.seed == "random" && (!a.shard.empty() || a.resume)) {
    throw UsageError("--seed random is another hunt each time: give all parts the same number");
  }
}

/// A part ends without shrinking: `rematch merge` does that once for all.
int check_part(const CheckArguments& a, const HuntOptions& o) {
  CheckOutcome outcome;
  hunt_cases(a, o, std::nullopt, outcome);
  const HuntResult& r = outcome.hunt;
  if (a.json) {
    nlohmann::ordered_json j = check_json(a, o, outcome);
    j["shard"] = {{"number", o.shard.number}, {"of", o.shard.of}, {"results", a.results}};
    print_out(j.dump(2) + "\n");
  } else if (!a.quiet || r.violations() > 0) {
    // Of workers that were lost; all else is shrunk and reported by merge.
    for (const Report& report : outcome.reports) print_out(text_of(report));
    print_part(a, o, r);
  }
  for (const Report& report : outcome.reports) save(report, !a.json);
  for (const std::string& error : outcome.errors) print_error("rematch: " + error + "\n");
  if (!outcome.reports.empty()) return kBroken;
  // A scheduler takes a part that saw a violation for done: one that is not has another status.
  if (!outcome.errors.empty()) return kUsage;
  if (r.interrupted) return kInterrupted;
  return r.violations() > 0 ? kBroken : kHeld;
}

int check(const CheckArguments& a) {
  check_results_options(a);
  HuntOptions o = hunt_options(a);
  o.shard = parse_shard(a.shard);
  if (!a.cases.empty()) o.cases = parse_whole("--cases", a.cases, 1);
  if (!a.duration.empty()) o.seconds = parse_duration("--for", a.duration);
  if (!o.cases && !o.seconds) o.cases = kDefaultCases;
  o.jobs = parse_jobs(a.jobs, o.worker.empty() ? kMaxJobs : kUsualWorkers);
  prepare_threads(o.jobs, a.quiet);
  o.stop = &stop_on_interrupt();
  if (a.seed == "random" && !a.json) print_out(fmt::format("seed {}\n", o.seed));

  // Before the hunt, whose findings it is to have.
  if (!a.junit.empty()) write_text(a.junit, "<testsuites/>\n", "--junit");
  if (o.shard.of > 1) return check_part(a, o);
  // Before anything else: all parts have to be there.
  std::optional<Tally> merged;
  if (!a.merged.empty())
    merged = merge_results({a.merged.begin(), a.merged.end()}, hunt_of(a, o), o);
  CheckOutcome outcome;
  try {
    judge_saved_cases(a, o, outcome);
  } catch (const std::exception& error) {
    if (outcome.reports.empty() && !o.stopped()) throw;
    if (!o.stopped()) outcome.errors.push_back(describe(error));
  }
  try {
    // An unreadable saved case is a usage error, unless something was found.
    if (outcome.errors.empty() && (outcome.reports.empty() || a.keep_going)) {
      hunt_cases(a, o, merged, outcome);
    }
  } catch (const std::exception& error) {
    outcome.errors.push_back(describe(error));
  }
  // Findings are printed before their files are written.
  if (a.json) {
    print_out(check_json(a, o, outcome).dump(2) + "\n");
  } else {
    for (const Report& report : outcome.reports) print_out(text_of(report));
  }
  for (const Report& report : outcome.reports) save(report, !a.json);
  if (!a.junit.empty()) {
    try {
      write_text(a.junit, junit_xml(a, o, outcome), "--junit");
    } catch (const UsageError& error) {
      outcome.errors.emplace_back(error.what());
    }
  }
  const bool says_something = !a.quiet || !outcome.reports.empty() || !outcome.hunt.passed();
  const bool judged = outcome.hunt.cases > 0 || !outcome.reports.empty();
  if (!a.json && says_something && (outcome.errors.empty() || judged)) {
    print_check(a, o, outcome);
  }
  for (const std::string& error : outcome.errors) print_error("rematch: " + error + "\n");
  if (!outcome.reports.empty()) return kBroken;
  if (!outcome.errors.empty()) return kUsage;
  if (outcome.hunt.interrupted) return kInterrupted;
  return outcome.hunt.passed() ? kHeld : kBroken;
}

void add_saved_options(Command& command, CheckArguments& a) {
  command.add("--save", a.save, "DIR", "Directory for the shrunk case of each finding").is_folder();
  const Option directory =
      command.add("--regressions", a.regressions, "DIR",
                  "Directory of saved cases to judge first (default: those of the source tree)");
  command.add_flag("--no-regressions", a.no_regressions, "Skip the saved cases")
      .excludes(directory);
  command.add_flag(
      "--corpus", a.corpus,
      "Judge some of the first 100,000 cases of the seed before the others: those that "
      "have all their pairs of features");
}

void add_report_options(Command& command, CheckArguments& a) {
  command.add("--junit", a.junit, "FILE", "Also write a JUnit report to this file");
  command.add_flag("--json", a.json, "JSON instead of text");
  command.add_flag("--quiet", a.quiet, "Print only violations and errors");
}

}  // namespace

void add_check(Command& app) {
  Command command = app.add_command(
      "check", "Hunt: run random cases plain and checkpointed, and judge them by the laws");
  auto a = std::make_shared<CheckArguments>();
  command.add("--cases", a->cases, "N", "Number of cases (default: 20000; unlimited with --for)");
  command.add("--for", a->duration, "TIME", "How long to hunt: 60s, 5m, 1h");
  command.add("--seed", a->seed, "S", "Seed, or \"random\"");
  command.add(
      "--jobs", a->jobs, "N",
      "Threads; on a device, processes (default: one for each core, on a device at most 16)");
  a->laws.add_options(command);
  command.add("--mix", a->mix, "MIX", "Mix of cases: standard or wide");
  a->subject.add_options(command);
  a->subject.add_profile(command);
  add_saved_options(command, *a);
  command.add_flag(
      "--keep-going", a->keep_going,
      "Continue after a violation; report each distinct finding once, with the number of cases "
      "that shrink to it (of the first 100 violating cases of each law)");
  command.add("--results", a->results, "FILE",
              "Keep what is found in this file while hunting, so that --resume can go on");
  command.add_flag("--resume", a->resume, "Go on where the file of --results ends, if it is there");
  command.add("--shard", a->shard, "K/N",
              "Hunt part K of N of the cases into --results; `rematch merge` adds up all parts");
  add_report_options(command, *a);
  command.runs([a] { return check(*a); });
}

void add_merge(Command& app) {
  Command command = app.add_command(
      "merge", "Add up the results of all parts of a hunt: the report of one hunt of all cases");
  auto a = std::make_shared<CheckArguments>();
  command.add("files", a->merged, "FILE", "Files of `check --shard K/N --results FILE`").required();
  command.add("--jobs", a->jobs, "N", "Threads that shrink");
  add_saved_options(command, *a);
  add_report_options(command, *a);
  command.runs([a] {
    CheckArguments of_hunt = arguments_of_hunt(hunt_of_results(a->merged.front()));
    of_hunt.merged = a->merged;
    of_hunt.jobs = a->jobs;
    of_hunt.save = a->save;
    of_hunt.regressions = a->regressions;
    of_hunt.no_regressions = a->no_regressions;
    of_hunt.corpus = a->corpus;
    of_hunt.junit = a->junit;
    of_hunt.json = a->json;
    of_hunt.quiet = a->quiet;
    return check(of_hunt);
  });
}

}  // namespace rematch::cli
