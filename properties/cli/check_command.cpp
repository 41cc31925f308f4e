#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "engine/build/build_info.h"
#include "properties/case/json.h"
#include "properties/cli/commands.h"
#include "properties/cli/terminal.h"
#include "properties/generate/words.h"
#include "properties/hunt/hunt.h"
#include "properties/hunt/regressions.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kDefaultCases = 20000;

struct CheckArguments {
  std::string cases;
  std::string duration;
  std::string seed = "1";
  std::string jobs;
  std::string law;
  std::string mix = "wide";
  SubjectChoice subject;
  std::string save = ".";
  std::string regressions;
  bool no_regressions = false;
  bool json = false;
  bool quiet = false;
};

std::uint64_t parse_seed(const std::string& text) {
  if (text != "random") return parse_whole("--seed", text, 0, " or \"random\"");
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// A broken case, ready to be told about.
struct Finding {
  Breach breach;
  Case smallest;
  std::filesystem::path saved;
  /// Command lines that run the case again: shrunk, and as it was found (empty for a regression).
  std::string replay;
  std::string original;
};

std::string replay_line(const CheckArguments& a, const std::filesystem::path& file) {
  return again("replay" + a.subject.options() + " " + shell_word(file.lexically_normal().string()));
}

std::string statement_of(std::string_view law) {
  const Law* found = find_law(law);
  return found != nullptr ? std::string(found->statement)
                          : "Every run of a valid case ends in a record.";
}

Json finding_json(const Finding& f) {
  Json j;
  j["law"] = f.breach.law;
  j["place"] = f.breach.place;
  j["expected"] = f.breach.expected;
  j["got"] = f.breach.got;
  j["case"] = Json::parse(to_json(f.smallest));
  j["replay"] = f.replay;
  if (!f.original.empty()) j["original"] = f.original;
  return j;
}

void print_finding(const Finding& f) {
  const Paint paint(colour_wanted(1));
  print_out(fmt::format("{} {}\n  {}\n\n", paint.red("BROKEN"), paint.bold(f.breach.law),
                        statement_of(f.breach.law)));
  print_out(fmt::format("  at        {}\n  expected  {}\n  got       {}\n\n", f.breach.place,
                        f.breach.expected, f.breach.got));
  std::string words = describe(f.smallest);
  if (!words.empty() && words.back() == '\n') words.pop_back();
  std::string indented = "  ";
  for (const char c : words) {
    indented += c;
    if (c == '\n') indented += "  ";
  }
  print_out(indented + "\n\n");
  print_out(fmt::format("  again:    {}\n", paint.cyan(f.replay)));
  if (!f.original.empty()) print_out(fmt::format("  unshrunk: {}\n", f.original));
  print_out("\n");
}

Json result_json(const CheckArguments& a, const HuntOptions& o, const HuntResult& r,
                 std::size_t regressions, const std::optional<Finding>& finding) {
  Json j;
  j["subject"] = a.subject.name;
  j["device"] = a.subject.device;
  j["build"] = build_kind();
  j["mix"] = a.mix;
  j["seed"] = o.seed;
  j["regressions"] = regressions;
  j["cases"] = r.cases;
  j["record_hash"] = fmt::format("{:016x}", r.record_hash);
  Json checked = Json::object();
  for (std::size_t i = 0; i < r.checks.size(); ++i) {
    checked[std::string(laws()[i].name)] = r.checks[i];
  }
  j["laws"] = checked;
  Json features = Json::object();
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    features[std::string(rematch::to_string(feature))] = {{"cases", r.features[i]},
                                                          {"floor", floor(o.mix, feature)}};
  }
  j["features"] = features;
  j["failure"] = finding ? finding_json(*finding) : Json();
  j["shortfalls"] = r.shortfalls;
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

void print_summary(const CheckArguments& a, const HuntOptions& o, const HuntResult& r,
                   std::size_t regressions, bool broken) {
  const Paint paint(colour_wanted(1));
  // Of a hunt that ended at a finding the frequencies say nothing.
  if (!broken) print_features(o, r);
  std::uint64_t checks = 0;
  for (const std::uint64_t n : r.checks) checks += n;
  print_out(fmt::format("{} regressions, {} cases of the {} mix, seed {}; {} checks of {} laws\n",
                        regressions, grouped(static_cast<std::int64_t>(r.cases)), a.mix, o.seed,
                        grouped(static_cast<std::int64_t>(checks)),
                        o.only != nullptr ? 1 : laws().size()));
  print_out(fmt::format("{} at {} cases/s on {} job{}; record hash {:016x}\n",
                        seconds_text(r.seconds),
                        grouped(static_cast<std::int64_t>(r.cases_per_second())), o.jobs,
                        o.jobs == 1 ? "" : "s", r.record_hash));
  for (const std::string& s : r.shortfalls) {
    print_out(fmt::format("{} {}\n", paint.red("SHORT"), s));
  }
  if (r.interrupted) print_out(paint.yellow("interrupted: the hunt ended early") + "\n");
  if (!broken && r.passed()) {
    print_out(paint.green(r.interrupted ? "all laws held so far" : "all laws held") + "\n");
  }
}

/// The first regression that breaks, if any; `count` is how many were run.
std::optional<Finding> run_regressions(const CheckArguments& a, const HuntOptions& o,
                                       std::size_t& count) {
  std::optional<std::filesystem::path> directory;
  if (a.no_regressions) return std::nullopt;
  if (!a.regressions.empty()) {
    directory = a.regressions;
  } else {
    directory = default_regressions(executable());
  }
  if (!directory) return std::nullopt;
  const std::unique_ptr<Subject> subject = a.subject.make();
  Bench bench;
  for (const std::filesystem::path& file : regression_files(*directory)) {
    if (o.stop->load()) break;
    const Case c = load_case(file);
    ++count;
    const Verdict verdict = judge_or_catch(c, *subject, bench, o.only);
    if (verdict.breach) return Finding{*verdict.breach, c, file, replay_line(a, file), ""};
  }
  return std::nullopt;
}

int check(const CheckArguments& a) {
  HuntOptions o;
  o.mix = parse_mix(a.mix);
  o.seed = parse_seed(a.seed);
  o.only = parse_law(a.law);
  if (!a.cases.empty()) o.cases = parse_whole("--cases", a.cases, 1);
  if (!a.duration.empty()) o.seconds = parse_duration(a.duration);
  if (!o.cases && !o.seconds) o.cases = kDefaultCases;
  o.jobs = parse_jobs(a.jobs);
  o.make_subject = [&a] { return a.subject.make(); };
  o.stop = &stop_on_interrupt();
  if (a.seed == "random" && !a.json) print_out(fmt::format("seed {}\n", o.seed));

  std::size_t regressions = 0;
  std::optional<Finding> finding = run_regressions(a, o, regressions);
  HuntResult result;
  if (!finding) {
    StatusLine status(a.quiet || a.json);
    o.progress = [&](const HuntProgress& p) {
      std::optional<double> fraction;
      if (o.cases) fraction = static_cast<double>(p.cases) / static_cast<double>(*o.cases);
      if (o.seconds) fraction = std::max(fraction.value_or(0), p.seconds / *o.seconds);
      status.show(p.seconds, fraction,
                  p.shrinking ? "shrinking the failing case"
                              : grouped(static_cast<std::int64_t>(p.cases)) + " cases");
    };
    result = hunt(o);
    status.clear();
    if (result.failure) {
      const std::filesystem::path file =
          std::filesystem::path(a.save) /
          fmt::format("rematch-{}-{}-{}.json", a.mix, o.seed, result.failure->index);
      finding =
          Finding{result.failure->breach, result.failure->smallest, file, replay_line(a, file),
                  again(fmt::format("replay{} --mix {} --seed {} --case {}", a.subject.options(),
                                    a.mix, o.seed, result.failure->index))};
      save_case(finding->smallest, finding->saved);
    }
  }
  if (a.json) {
    print_out(result_json(a, o, result, regressions, finding).dump(2) + "\n");
  } else {
    const bool broken = finding.has_value();
    if (broken) print_finding(*finding);
    if (!a.quiet || !result.passed()) print_summary(a, o, result, regressions, broken);
  }
  if (finding) return kBroken;
  if (result.interrupted) return kInterrupted;
  return result.passed() ? kHeld : kBroken;
}

}  // namespace

void add_check(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("check", "Hunt: random cases, plain against checkpointed, law by law");
  auto a = std::make_shared<CheckArguments>();
  command->add_option("--cases", a->cases, "Number of cases (default 20000, with --for unlimited)")
      ->type_name("N");
  command->add_option("--for", a->duration, "Hunt this long: 60s, 5m, 1h")->type_name("TIME");
  command->add_option("--seed", a->seed, "Seed, or \"random\"")
      ->capture_default_str()
      ->type_name("S");
  command->add_option("--jobs", a->jobs, "Threads (default: all)")->type_name("N");
  command
      ->add_option("--law", a->law,
                   "Judge by this law alone (a run that fails is reported all the same)")
      ->type_name("NAME");
  command->add_option("--mix", a->mix, "Mix of cases: standard or wide")
      ->capture_default_str()
      ->type_name("MIX");
  a->subject.add_options(*command);
  command->add_option("--save", a->save, "Where a failing case is saved")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  command
      ->add_option("--regressions", a->regressions,
                   "Cases to run first (default: those of the sources)")
      ->type_name("DIR");
  command->add_flag("--no-regressions", a->no_regressions, "Go straight to the hunt");
  command->add_flag("--json", a->json, "JSON instead of text");
  command->add_flag("--quiet", a->quiet, "Say something only when a law is broken");
  command->callback([&chosen, a] { chosen = [a] { return check(*a); }; });
}

}  // namespace rematch::cli
