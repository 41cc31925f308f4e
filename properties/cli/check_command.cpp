#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "properties/cli/check_report.h"
#include "properties/cli/saved_cases.h"
#include "properties/hunt/hunt.h"
#include "properties/record/machine.h"

namespace rematch::cli {
namespace {

constexpr std::uint64_t kDefaultCases = 20000;

void hunt_cases(const CheckArguments& a, HuntOptions o, CheckOutcome& outcome) {
  StatusLine status(a.quiet || a.json);
  o.progress = [&](const HuntProgress& p) { show_progress(status, o, p); };
  // Printed at once, so that the case can be replayed even if shrinking is interrupted.
  o.found = [&](const ViolatingCase& found) {
    status.clear();
    print_error(fmt::format("case {} violates {}; shrinking it. To replay it unshrunk: {}\n",
                            found.index, found.violation.law,
                            numbered_line(a, o.seed, found.index)));
  };
  outcome.hunt = hunt(o);
  status.clear();
  if (!outcome.hunt.error.empty()) outcome.errors.push_back(outcome.hunt.error);
  for (const Finding& f : outcome.hunt.findings) {
    add_report(report_of(a, o.seed, f, outcome.hunt.versions), outcome.reports);
  }
}

HuntOptions options_of(const CheckArguments& a) {
  HuntOptions o = hunt_options(a);
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

/// Judges the saved cases, and then hunts.
CheckOutcome judge_all(const CheckArguments& a, const HuntOptions& o) {
  CheckOutcome outcome;
  try {
    judge_saved_cases(a, o, outcome);
  } catch (const std::exception& error) {
    // A subject that cannot be judged is a mistake in the call, unless something was found.
    if (outcome.reports.empty() && !o.stopped()) throw;
    if (!o.stopped()) outcome.errors.push_back(describe(error));
  }
  if (outcome.errors.empty() && (outcome.reports.empty() || a.keep_going)) {
    attempt(outcome, [&] { hunt_cases(a, o, outcome); });
  }
  return outcome;
}

void write_files(const CheckArguments& a, const HuntOptions& o, CheckOutcome& outcome) {
  for (const Report& report : outcome.reports) save(report, !a.json);
  attempt(outcome, [&] { save_known(a, o, outcome.hunt); });
  if (a.junit.empty()) return;
  attempt(outcome, [&] { write_text(a.junit, check_junit(report_of(a, o, outcome)), "--junit"); });
}

bool is_worth_printing(const CheckArguments& a, const CheckReport& r) {
  const bool well = r.reports.empty() && r.errors.empty() && r.hunt.shortfalls.empty();
  if (a.quiet && well && r.violating_cases == 0) return false;
  return r.errors.empty() || r.hunted() || !r.reports.empty();
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
  add_report_options(command, *a);
  command.runs([a] { return check(*a); });
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

}  // namespace rematch::cli
