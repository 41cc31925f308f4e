#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "properties/cli/check_report.h"
#include "properties/cli/saved_cases.h"
#include "properties/hunt/hunt.h"
#include "properties/hunt/results.h"
#include "properties/hunt/tally.h"
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
    add_report(report_of(a, o.seed, f, outcome.hunt.versions), outcome.reports);
  }
}

/// Refuses what a part of a hunt, or one whose results are kept, cannot be combined with.
void check_results_options(const CheckArguments& a) {
  if (a.results.empty()) {
    if (!a.shard.empty()) throw UsageError("--shard needs --results, a file for what it finds");
    if (a.resume) throw UsageError("--resume needs --results, the file that it goes on with");
    return;
  }
  if (!a.shard.empty() && !a.junit.empty()) {
    throw UsageError("--junit is for `rematch merge`, which reports all parts");
  }
  if (!a.duration.empty()) {
    throw UsageError("--results needs a fixed number of cases: give --cases instead of --for");
  }
  if (a.seed == "random" && (!a.shard.empty() || a.resume)) {
    throw UsageError("--seed random is another hunt each time: give all parts the same number");
  }
}

HuntOptions options_of(const CheckArguments& a) {
  check_results_options(a);
  HuntOptions o = hunt_options(a);
  o.shard = parse_shard(a.shard);
  if (!a.cases.empty()) o.cases = parse_whole("--cases", a.cases, 1);
  if (!a.duration.empty()) o.seconds = parse_duration("--for", a.duration);
  if (!o.cases && !o.seconds) o.cases = kDefaultCases;
  o.jobs = parse_jobs(a.jobs, o.worker.empty() ? kMaxJobs : kUsualWorkers);
  return o;
}

/// Does one step. What goes wrong stands in the outcome; a step that may fail the whole check is
/// called without it.
template <class Step>
void attempt(CheckOutcome& outcome, Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    outcome.errors.push_back(describe(error));
  }
}

/// Judges the saved cases, and then hunts. A part of a hunt leaves the saved cases to merge.
CheckOutcome judge_all(const CheckArguments& a, const HuntOptions& o) {
  // Before anything else: all parts have to be there.
  std::optional<Tally> merged;
  if (!a.merged.empty()) {
    merged = merge_results({a.merged.begin(), a.merged.end()}, hunt_of(a, o), o);
  }
  CheckOutcome outcome;
  if (o.shard.of > 1) {
    hunt_cases(a, o, merged, outcome);
    return outcome;
  }
  try {
    judge_saved_cases(a, o, outcome);
  } catch (const std::exception& error) {
    // A subject that cannot be judged is a mistake in the call, unless something was found.
    if (outcome.reports.empty() && !o.stopped()) throw;
    if (!o.stopped()) outcome.errors.push_back(describe(error));
  }
  if (outcome.errors.empty() && (outcome.reports.empty() || a.keep_going)) {
    attempt(outcome, [&] { hunt_cases(a, o, merged, outcome); });
  }
  return outcome;
}

void write_files(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome) {
  for (const Report& report : outcome.reports) save(report, !a.json);
  if (o.shard.of > 1) return;
  attempt(outcome, [&] { save_known(a, o, outcome.hunt); });
  if (a.junit.empty()) return;
  attempt(outcome, [&] { write_text(a.junit, check_junit(report_of(a, o, outcome)), "--junit"); });
}

bool is_worth_printing(const CheckArguments& a, const CheckReport& r) {
  const bool well = r.findings.empty() && r.errors.empty() && r.shortfalls.empty();
  if (a.quiet && well && r.violating_cases == 0) return false;
  return r.part || r.errors.empty() || r.hunted() || !r.findings.empty();
}

int check(const CheckArguments& a) {
  HuntOptions o = options_of(a);
  prepare_threads(o.jobs, a.quiet);
  o.stop = &stop_on_interrupt();
  if (a.seed == "random" && !a.json) print_out(fmt::format("seed {}\n", o.seed));
  // Before the hunt, so that a name that cannot be written costs nothing.
  if (!a.junit.empty()) write_text(a.junit, "<testsuites/>\n", "--junit");

  CheckOutcome outcome = judge_all(a, o);
  for (Report& report : outcome.reports) reserve_file(report);
  // Findings are printed before their files are written.
  const CheckReport found = report_of(a, o, outcome);
  print_out(a.json ? check_json(found) : findings_text(found));
  write_files(a, o, outcome);
  const CheckReport report = report_of(a, o, outcome);
  if (!a.json && is_worth_printing(a, report)) print_out(check_text(report, a.verbose));
  for (const std::string& error : report.errors) print_error("rematch: " + error + "\n");
  return report.status();
}

void add_saved_options(Command& command, CheckArguments& a) {
  command
      .add("--save", a.save, "DIR",
           "Folder for the smallest case of each finding (default: the current one), and with "
           "--keep-going of each known bug")
      .is_folder();
  command.add("--regressions", a.regressions, "DIR",
              "Folder of saved cases to judge first, beside those that come with rematch; may be "
              "given several times");
  command.add_flag("--no-regressions", a.no_regressions,
                   "Skip the saved cases that come with rematch");
}

void add_report_options(Command& command, CheckArguments& a) {
  command.add("--junit", a.junit, "FILE", "Also write a JUnit report to this file");
  command.add_flag("--json", a.json, "JSON instead of text");
  command.add_flag("--quiet", a.quiet, "Print only violations and errors");
  command.add_flag("--verbose", a.verbose,
                   "Also print how often each feature occurred, and which known bugs did not");
}

void declare_check(Command& command) {
  auto a = std::make_shared<CheckArguments>();
  a->subject.add_options(command);
  a->subject.add_profile(command);
  command.add("--cases", a->cases, "N", "Number of cases (default: 20000; unlimited with --for)");
  command.add("--for", a->duration, "TIME", "How long to hunt: 60s, 5m, 1h");
  command.add("--seed", a->seed, "S", "Seed, or \"random\"");
  command.add("--mix", a->mix, "MIX", "Mix of cases: standard or wide");
  command.add_flag(
      "--keep-going", a->keep_going,
      "Continue after a violation; report each distinct finding once, with the number of cases "
      "that shrink to it (of the first 100 violating cases of each law)");
  a->laws.add_options(command);
  command.add(
      "--jobs", a->jobs, "N",
      "Threads; on a device, processes (default: one for each core, on a device at most 16)");
  add_saved_options(command, *a);
  command.add("--results", a->results, "FILE",
              "Keep what is found in this file while hunting, so that --resume can go on");
  command.add_flag("--resume", a->resume, "Go on where the file of --results ends, if it exists");
  command.add("--shard", a->shard, "K/N",
              "Hunt part K of N of the cases into --results; `rematch merge` adds up all parts");
  add_report_options(command, *a);
  command.runs([a] { return check(*a); });
}

void declare_merge(Command& command) {
  auto a = std::make_shared<CheckArguments>();
  command.add("files", a->merged, "FILE", "Files of `check --shard K/N --results FILE`").required();
  command.add("--jobs", a->jobs, "N", "Threads that shrink (default: one for each core)");
  add_saved_options(command, *a);
  add_report_options(command, *a);
  command.runs([a] {
    // The hunt decides what was asked; how it is reported is asked here.
    const CheckArguments of_hunt = arguments_of_hunt(hunt_of_results(a->merged.front()));
    CheckArguments all = *a;
    all.subject = of_hunt.subject;
    all.laws = of_hunt.laws;
    all.mix = of_hunt.mix;
    all.seed = of_hunt.seed;
    all.cases = of_hunt.cases;
    all.keep_going = of_hunt.keep_going;
    return check(all);
  });
}

}  // namespace

const CommandEntry check_command{
    .name = "check",
    .summary = "Look for bugs: run random cases plain and checkpointed, and compare them",
    .examples =
        "  rematch check --subject pytorch --cases 300\n"
        "  rematch check --subject pytorch --keep-going --save found --cases 2000\n"
        "  rematch check --subject mine.py:my_checkpoint\n"
        "  rematch check --for 60s --seed random",
    .declare = declare_check,
};

const CommandEntry merge_command{
    .name = "merge",
    .summary = "Add up the results of all parts of a hunt, as if one process had hunted",
    .examples =
        "  rematch check --cases 1000000 --shard 1/2 --results part1\n"
        "  rematch check --cases 1000000 --shard 2/2 --results part2\n"
        "  rematch merge part1 part2",
    .declare = declare_merge,
};

}  // namespace rematch::cli
