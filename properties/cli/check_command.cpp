#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/build/build_info.h"
#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/cli/commands.h"
#include "properties/cli/finding.h"
#include "properties/cli/run_progress.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"
#include "properties/hunt/regressions.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kDefaultCases = 20000;

struct CheckArguments {
  std::string cases;
  std::string duration;
  std::string seed = "1";
  std::string jobs;
  LawChoice laws;
  std::string mix = "wide";
  SubjectChoice subject;
  std::string save = ".";
  std::string regressions;
  bool no_regressions = false;
  bool keep_going = false;
  bool json = false;
  bool quiet = false;
};

/// The outcome of a check.
struct Outcome {
  HuntResult hunt;
  std::size_t saved_cases = 0;
  std::vector<Report> reports;
  /// Errors of the check itself.
  std::vector<std::string> errors;
};

std::uint64_t parse_seed(const std::string& text) {
  if (text != "random") return parse_whole("--seed", text, 0, " or \"random\"");
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::string replay_line(const CheckArguments& a, const std::filesystem::path& file) {
  return again("replay" + a.subject.options() + " " + shell_word(file.lexically_normal().string()));
}

std::string numbered_line(const CheckArguments& a, std::uint64_t seed, std::uint64_t index) {
  return again(fmt::format("replay{} --mix {} --seed {} --case {}", a.subject.options(), a.mix,
                           seed, index));
}

Json result_json(const CheckArguments& a, const HuntOptions& o, const Outcome& outcome) {
  const HuntResult& r = outcome.hunt;
  Json j;
  j["subject"] = a.subject.name;
  j["device"] = a.subject.device;
  j["build"] = build_kind();
  j["mix"] = a.mix;
  j["seed"] = o.seed;
  j["saved_cases"] = outcome.saved_cases;
  j["cases"] = r.cases;
  j["not_judged"] = r.not_judged;
  if (r.not_judged > 0) j["why_not_judged"] = r.why_not_judged;
  j["violating_cases"] = r.violations();
  j["record_hash"] = fmt::format("{:016x}", r.record_hash);
  j["laws"] = Json::object();
  for (std::size_t i = 0; i < r.verdicts.size(); ++i) {
    if (!o.judged()[i]) continue;
    Json& counts = j["laws"][std::string(laws()[i].name)];
    for (std::size_t v = 0; v < kVerdictCount; ++v) {
      counts[std::string(to_string(static_cast<Verdict>(v)))] = r.verdicts[i][v];
    }
  }
  j["features"] = Json::object();
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    j["features"][std::string(rematch::to_string(feature))] = {{"cases", r.features[i]},
                                                               {"floor", floor(o.mix, feature)}};
  }
  j["known"] = Json::array();
  for (std::size_t i = 0; i < r.known.size(); ++i) {
    const KnownDivergence& entry = o.profile.entries()[i];
    Json known{{"id", entry.id}, {"cases", r.known[i]}, {"why", entry.why}, {"link", entry.link}};
    for (const Finding& f : r.known_findings) {
      if (f.known == i) known["case"] = Json::parse(to_json(f.smallest));
    }
    j["known"].push_back(known);
  }
  j["findings"] = Json::array();
  for (const Report& report : outcome.reports) j["findings"].push_back(json_of(report));
  j["shortfalls"] = r.shortfalls;
  j["errors"] = outcome.errors;
  j["interrupted"] = r.interrupted;
  j["seconds"] = r.seconds;
  j["cases_per_second"] = r.cases_per_second();
  return j;
}

void print_features(const HuntOptions& o, const HuntResult& r) {
  const double total = static_cast<double>(std::max<std::uint64_t>(r.cases, 1));
  Table table({false, true, true, false, true, true});
  std::vector<std::vector<std::string>> cells;
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    const double promised = floor(o.mix, feature);
    if (r.features[i] == 0 && promised == 0) continue;
    cells.push_back({std::string(rematch::to_string(feature)),
                     fmt::format("{:.1f}%", 100 * static_cast<double>(r.features[i]) / total),
                     promised > 0 ? fmt::format("{:.1f}%", 100 * promised) : "-"});
  }
  table.add({"feature", "cases", "floor", "feature", "cases", "floor"});
  const std::size_t half = (cells.size() + 1) / 2;
  for (std::size_t i = 0; i < half; ++i) {
    std::vector<std::string> row = cells[i];
    if (i + half < cells.size()) {
      row.insert(row.end(), cells[i + half].begin(), cells[i + half].end());
    }
    table.add(row);
  }
  print_out(table.text() + "\n");
}

std::uint64_t count_of(const VerdictCounts& counts, Verdict verdict) {
  return counts[static_cast<std::size_t>(verdict)];
}

std::uint64_t judged(const VerdictCounts& counts) {
  return count_of(counts, Verdict::kept) + count_of(counts, Verdict::violated);
}

/// The laws that judged no case, and why.
std::string silent_laws(const HuntOptions& o, const HuntResult& r) {
  std::string unobserved;
  std::string inapplicable;
  for (std::size_t i = 0; i < r.verdicts.size(); ++i) {
    if (!o.laws[i] || judged(r.verdicts[i]) > 0) continue;
    std::string& list =
        count_of(r.verdicts[i], Verdict::not_observed) > 0 ? unobserved : inapplicable;
    list += (list.empty() ? "" : ", ") + std::string(laws()[i].name);
  }
  std::string text;
  if (!inapplicable.empty()) text += "judged no case (n/a): " + inapplicable + "\n";
  if (!unobserved.empty()) text += "judged no case (not observed): " + unobserved + "\n";
  return text;
}

/// The findings of a hunt with --keep-going, by law. Shrinking may turn a violation of one law into
/// a violation of another.
void print_findings_table(const HuntOptions& o, const HuntResult& r) {
  Table table({false, true, true, true});
  table.add({"law", "violating cases", "shrunk to it", "distinct"});
  std::uint64_t shrunk = 0;
  for (std::size_t i = 0; i < r.first_violated.size(); ++i) {
    std::uint64_t cases = 0;
    std::uint64_t distinct = 0;
    for (const Finding& f : r.findings) {
      if (f.violation.law != laws()[i].name) continue;
      cases += f.count;
      ++distinct;
    }
    shrunk += cases;
    if (r.first_violated[i] + cases == 0) continue;
    table.add({std::string(laws()[i].name), grouped(static_cast<std::int64_t>(r.first_violated[i])),
               grouped(static_cast<std::int64_t>(cases)), std::to_string(distinct)});
  }
  print_out(table.text());
  if (shrunk < r.violations()) {
    print_out(fmt::format("only the first {} violating cases of each law were shrunk: {} of {}\n",
                          o.shrunk_per_law, grouped(static_cast<std::int64_t>(shrunk)),
                          grouped(static_cast<std::int64_t>(r.violations()))));
  }
  print_out("\n");
}

/// What the profile explains, and of what it says nothing was seen.
void print_known(const CheckArguments& a, const HuntOptions& o, const HuntResult& r) {
  const std::vector<KnownDivergence>& entries = o.profile.entries();
  if (entries.empty() || r.known.empty()) return;
  Table table({false, true, false});
  table.add({"known divergence", "cases", "smallest case"});
  std::string stale;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (r.known[i] == 0) {
      stale += (stale.empty() ? "" : ", ") + entries[i].id;
      continue;
    }
    std::string smallest = "--keep-going shrinks one";
    for (const Finding& f : r.known_findings) {
      if (f.known != i) continue;
      smallest = describe(f.smallest);
      std::replace(smallest.begin(), smallest.end(), '\n', ';');
    }
    table.add({entries[i].id, grouped(static_cast<std::int64_t>(r.known[i])),
               a.keep_going ? cut(smallest, 100) : smallest});
  }
  print_out(table.text());
  if (!stale.empty()) print_out("known, but seen in no case: " + stale + "\n");
  print_out("\n");
}

void print_summary(const CheckArguments& a, const HuntOptions& o, const Outcome& outcome) {
  const Paint paint(colour_wanted(1));
  const HuntResult& r = outcome.hunt;
  // After a finding the hunt ends early, so the frequencies say nothing.
  if (outcome.reports.empty()) print_features(o, r);
  if (a.keep_going && r.violations() > 0) print_findings_table(o, r);
  print_known(a, o, r);
  std::uint64_t checks = 0;
  for (const VerdictCounts& counts : r.verdicts) checks += judged(counts);
  print_out(fmt::format("{}, {} of the {} mix, seed {}; {} of {}\n",
                        counted(outcome.saved_cases, "saved case"), counted(r.cases, "case"), a.mix,
                        o.seed, counted(checks, "check"), counted(o.judged().count(), "law")));
  if (r.cases > 0) print_out(silent_laws(o, r));
  if (r.not_judged > 0) {
    print_out(fmt::format("{} could not be run, and {} not judged; the first: {}\n",
                          counted(r.not_judged, "case"), r.not_judged == 1 ? "was" : "were",
                          r.why_not_judged));
  }
  print_out(fmt::format("{} at {} cases/s on {}; record hash {:016x}\n", seconds_text(r.seconds),
                        grouped(static_cast<std::int64_t>(r.cases_per_second())),
                        counted(static_cast<std::uint64_t>(o.jobs), "job"), r.record_hash));
  for (const std::string& s : r.shortfalls) {
    print_out(fmt::format("{} {}\n", paint.red("SHORT"), s));
  }
  if (r.interrupted)
    print_out(paint.yellow(r.findings.empty()
                               ? "interrupted: the hunt ended early"
                               : "interrupted: some violating cases were not shrunk") +
              "\n");
  if (outcome.reports.empty() && r.passed()) {
    print_out(paint.green(r.interrupted ? "all laws kept so far" : "all laws kept") + "\n");
  }
}

/// Judges the saved cases: up to the first violation, or all if the check keeps going.
void judge_saved_cases(const CheckArguments& a, const HuntOptions& o, Outcome& outcome) {
  std::optional<std::filesystem::path> directory;
  if (a.no_regressions) return;
  if (!a.regressions.empty()) {
    directory = a.regressions;
  } else {
    directory = default_regressions(executable());
  }
  if (!directory) return;
  const std::unique_ptr<Subject> subject = a.subject.make();
  const FeatureSet within = subject->implements();
  Workspace workspace;
  RunProgress progress(a.quiet || a.json);
  for (const std::filesystem::path& file : regression_files(*directory)) {
    if (o.stop->load()) return;
    Case c;
    try {
      c = load_case(file);
    } catch (const std::invalid_argument& error) {
      outcome.errors.emplace_back(error.what());
      continue;
    }
    if (!within.contains_all(features_of(c, validate(c)))) continue;
    progress.note("saved case " + file.filename().string());
    ++outcome.saved_cases;
    Verdicts verdicts;
    try {
      verdicts = judge(c, *subject, workspace, o.judged());
    } catch (const NotJudged&) {
      continue;
    }
    const Violation* violation =
        o.profile.first_new(verdicts, c, features_of(c, workspace.geometry));
    if (violation == nullptr) continue;
    outcome.reports.push_back(
        {*violation, c, 1, file, {}, true, replay_line(a, file), std::string()});
    if (!a.keep_going) return;
  }
}

void hunt_cases(const CheckArguments& a, HuntOptions o, Outcome& outcome) {
  StatusLine status(a.quiet || a.json);
  o.progress = [&](const HuntProgress& p) {
    std::optional<double> fraction;
    if (o.cases) fraction = static_cast<double>(p.cases) / static_cast<double>(*o.cases);
    if (o.seconds) fraction = std::max(fraction.value_or(0), p.seconds / *o.seconds);
    std::string text = counted(p.cases, "case");
    if (p.violations > 0)
      text += ", " + grouped(static_cast<std::int64_t>(p.violations)) + " violating";
    if (p.to_shrink > 0) {
      fraction = static_cast<double>(p.shrunk) / static_cast<double>(p.to_shrink);
      text = fmt::format("shrinking, {} of {}", p.shrunk, counted(p.to_shrink, "violating case"));
    }
    status.show(p.seconds, fraction, text);
  };
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
    const std::filesystem::path file =
        std::filesystem::path(a.save) / file_name(a.subject.name, f, o.seed);
    outcome.reports.push_back({f.violation,
                               f.smallest,
                               f.count,
                               file,
                               {},
                               false,
                               replay_line(a, file),
                               numbered_line(a, o.seed, f.index)});
    reserve_file(outcome.reports.back());
  }
}

int check(const CheckArguments& a) {
  HuntOptions o;
  o.mix = parse_mix(a.mix);
  o.seed = parse_seed(a.seed);
  o.laws = a.laws.chosen();
  o.failures = a.laws.failures();
  o.keep_going = a.keep_going;
  o.profile = a.subject.known();
  if (!a.cases.empty()) o.cases = parse_whole("--cases", a.cases, 1);
  if (!a.duration.empty()) o.seconds = parse_duration(a.duration);
  if (!o.cases && !o.seconds) o.cases = kDefaultCases;
  o.jobs = parse_jobs(a.jobs);
  o.make_subject = [&a] { return a.subject.make(); };
  o.stop = &stop_on_interrupt();
  if (a.seed == "random" && !a.json) print_out(fmt::format("seed {}\n", o.seed));

  Outcome outcome;
  outcome.hunt.verdicts.resize(laws().size());
  judge_saved_cases(a, o, outcome);
  try {
    // An unreadable saved case is a usage error, unless something was found.
    if (outcome.errors.empty() && (outcome.reports.empty() || a.keep_going)) {
      hunt_cases(a, o, outcome);
    }
  } catch (const std::exception& error) {
    outcome.errors.emplace_back(error.what());
  }
  // Printed before the files are written.
  if (a.json) {
    print_out(result_json(a, o, outcome).dump(2) + "\n");
  } else {
    for (const Report& report : outcome.reports) print_out(text_of(report));
  }
  for (const Report& report : outcome.reports) save(report, !a.json);
  const bool says_something = !a.quiet || !outcome.reports.empty() || !outcome.hunt.passed();
  if (!a.json && says_something && (outcome.errors.empty() || !outcome.reports.empty())) {
    print_summary(a, o, outcome);
  }
  for (const std::string& error : outcome.errors) print_error("rematch: " + error + "\n");
  if (!outcome.reports.empty()) return kBroken;
  if (!outcome.errors.empty()) return kUsage;
  if (outcome.hunt.interrupted) return kInterrupted;
  return outcome.hunt.passed() ? kHeld : kBroken;
}

}  // namespace

void add_check(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "check", "Hunt: run random cases plain and checkpointed, and judge them by the laws");
  auto a = std::make_shared<CheckArguments>();
  command->add_option("--cases", a->cases, "Number of cases (default: 20000; unlimited with --for)")
      ->type_name("N");
  command->add_option("--for", a->duration, "How long to hunt: 60s, 5m, 1h")->type_name("TIME");
  command->add_option("--seed", a->seed, "Seed, or \"random\"")
      ->capture_default_str()
      ->type_name("S");
  command->add_option("--jobs", a->jobs, "Threads (default: all)")->type_name("N");
  a->laws.add_options(*command);
  command->add_option("--mix", a->mix, "Mix of cases: standard or wide")
      ->capture_default_str()
      ->type_name("MIX");
  a->subject.add_options(*command);
  a->subject.add_profile(*command);
  command->add_option("--save", a->save, "Directory for the shrunk case of each finding")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  command
      ->add_option("--regressions", a->regressions,
                   "Directory of saved cases to judge first (default: those of the source tree)")
      ->type_name("DIR");
  command->add_flag("--no-regressions", a->no_regressions, "Skip the saved cases");
  command->add_flag(
      "--keep-going", a->keep_going,
      "Continue after a violation; report each distinct finding once, with the number of cases "
      "that shrink to it (of the first 100 violating cases of each law)");
  command->add_flag("--json", a->json, "JSON instead of text");
  command->add_flag("--quiet", a->quiet, "Print only violations and errors");
  command->callback([&chosen, a] { chosen = [a] { return check(*a); }; });
}

}  // namespace rematch::cli
