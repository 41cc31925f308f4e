#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/cli/check_arguments.h"
#include "properties/cli/commands.h"
#include "properties/cli/finding.h"
#include "properties/cli/page_files.h"
#include "properties/cli/rare_entries.h"
#include "properties/conform/causes.h"
#include "properties/conform/page.h"
#include "properties/conform/words.h"
#include "properties/hunt/frameworks.h"
#include "properties/hunt/hunt.h"
#include "properties/hunt/registry.h"
#include "properties/output/terminal.h"
#include "properties/record/machine.h"

namespace rematch::cli {
namespace {

namespace fs = std::filesystem;
using conform::Column;
using conform::Divergence;
using conform::Page;

struct ConformArguments {
  std::vector<std::string> subjects;
  std::string cases;
  std::string structures;
  std::string duration;
  std::string seed;
  std::string mix = "wide";
  std::string jobs;
  std::string limit;
  std::string out;
  std::vector<std::string> from;
  std::string state;
  bool resume = false;
  bool all = false;
  bool json = false;
  bool quiet = false;
};

constexpr std::uint64_t kStructuresOfASubject = 500;

/// Every framework, where all are asked for, and those that are named, each once. Throws UsageError
/// for a name that is none.
std::vector<std::string> subjects_of(const ConformArguments& a) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  const std::vector<std::string> known = subject_names();
  if (a.all) {
    for (const auto& [framework, subject] : known_frameworks().subjects) add(framework);
  }
  for (const std::string& name : a.subjects) {
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    // What is no command and no name: make_subject() says what is nearest.
    if (!is_known && name.find(' ') == std::string::npos) (void)make_subject(name);
    add(name);
  }
  return names;
}

/// Refuses to hunt in everything that is known unless that is asked for, and says what it would
/// take.
[[noreturn]] void ask_for_names(const ConformArguments& a) {
  // The subjects of golden/conformance took so long on average: half a minute where operations run
  // one by one, and up to half an hour where every model is compiled.
  constexpr double kSecondsPerStructure = 0.4;
  const std::uint64_t asked = !a.structures.empty() ? parse_whole("--structures", a.structures, 1)
                              : !a.cases.empty()    ? parse_whole("--cases", a.cases, 1)
                                                    : kStructuresOfASubject;
  double seconds = kSecondsPerStructure * static_cast<double>(asked);
  if (!a.duration.empty()) seconds = parse_duration("--for", a.duration);
  const std::size_t count = known_frameworks().subjects.size();
  throw UsageError(fmt::format(
      "conform expects the names of implementations, such as `{}` (`{}` lists them), or --all: all "
      "{} of them take about {:.1f} hours",
      again("conform pytorch jax --out page"), again("subjects"), count,
      seconds * static_cast<double>(count) / 3600));
}

/// One Python cannot be that of several environments.
void check_python(const std::vector<std::string>& subjects) {
  const char* const chosen = std::getenv("REMATCH_PYTHON");
  if (chosen == nullptr || *chosen == '\0') return;
  std::set<std::string> environments;
  for (const std::string& name : subjects) {
    const auto found = known_frameworks().subjects.find(name);
    if (found != known_frameworks().subjects.end()) environments.insert(found->second.environment);
  }
  if (environments.size() < 2) return;
  std::string names;
  for (const std::string& environment : environments) {
    names += (names.empty() ? "" : ", ") + python_variable(environment);
  }
  throw UsageError(
      fmt::format("REMATCH_PYTHON is one Python, and the subjects need {}: unset it, or "
                  "choose each by {}",
                  environments.size(), names));
}

/// What went wrong, as it may stand on a page that others read: without the command line, which
/// begins with paths of this machine.
std::string problem_of(std::string what) {
  constexpr std::string_view kBefore = "cannot be judged: ";
  if (const std::size_t at = what.find(kBefore); at != std::string::npos) {
    what.erase(0, at + kBefore.size());
  }
  if (const char* const home = std::getenv("HOME"); home != nullptr && std::strlen(home) > 1) {
    for (std::size_t at = 0; (at = what.find(home, at)) != std::string::npos; ++at) {
      what.replace(at, std::strlen(home), "~");
    }
  }
  return what;
}

/// The files of scripts, by their texts. Subjects of one framework often have the same.
using Scripts = std::map<std::string, std::string>;

/// A script that shows the divergence, or nothing where there is none.
std::string script_of(const Divergence& d, const SubjectChoice& choice,
                      std::unique_ptr<Subject>& subject) {
  try {
    if (!subject) subject = choice.make();
    if (!subject->declares().exports) return {};
    return subject->export_script(d.smallest, validate(d.smallest), text_for_script(d.violation));
  } catch (const NotJudged&) {
    return {};
  } catch (const std::exception& error) {
    // The next one has a new process.
    subject.reset();
    if (!choice.limits().stopped()) {
      print_error(fmt::format("{}: no script for {}: {}\n", choice.name, d.id, error.what()));
    }
    return {};
  }
}

/// Writes what belongs to each divergence, and names it in the column.
void save_divergences(const ConformArguments& a, const HuntOptions& o, const CheckArguments& check,
                      Scripts& scripts, Column& column) {
  const SubjectChoice& choice = check.subject;
  std::unique_ptr<Subject> subject;
  for (Divergence& d : column.divergences) {
    d.unshrunk = numbered_line(check, o.seed, d.index);
    if (a.out.empty()) continue;
    // A known one has a name that lasts; two new ones must not have the same.
    const std::string stem =
        d.mark == conform::Mark::fresh
            ? fs::path(
                  file_name(choice.name, {d.violation, d.index, d.smallest, d.smallest}, o.seed))
                  .stem()
                  .string()
            : plain_name(choice.name) + "-" + plain_name(d.id);
    d.file = "cases/" + stem + ".json";
    write_text(fs::path(a.out) / d.file, to_json(d.smallest, {{"subject", choice.name}}));
    d.replay = replay_line(choice, fs::path(a.out) / d.file);
    if (o.stopped()) continue;
    const std::string script = script_of(d, choice, subject);
    if (script.empty()) continue;
    const auto [known, is_new] = scripts.emplace(script, "scripts/" + stem + ".py");
    d.script = known->second;
    if (is_new) write_text(fs::path(a.out) / d.script, script);
  }
}

Column judge(const ConformArguments& a, const std::string& name, std::uint64_t seed,
             const std::string& before, Scripts& scripts, StatusLine& status) {
  const std::atomic<bool>& stop = stop_on_interrupt();
  Column column;
  column.subject = name;
  if (stop) {
    column.interrupted = true;
    column.problem = "interrupted before it was judged";
    return column;
  }
  CheckArguments check;
  check.subject.name = name;
  if (!is_in_process(name)) check.subject.limit = a.limit;
  check.mix = a.mix;
  check.seed = std::to_string(seed);
  check.keep_going = true;
  HuntOptions o;
  try {
    o = hunt_options(check);
    if (!a.cases.empty()) o.cases = parse_whole("--cases", a.cases, 1);
    if (!a.duration.empty()) o.seconds = parse_duration("--for", a.duration);
    if (!a.structures.empty()) o.structures = parse_whole("--structures", a.structures, 1);
    // With fewer, no law could be called kept.
    o.structures_at_least = kFewStructures;
    if (!o.cases && !o.structures && !o.seconds) o.structures = kStructuresOfASubject;
    o.jobs = parse_jobs(a.jobs);
    // A page has dozens of divergences; `check` shrinks further.
    o.shrink.seconds = 1;
    o.stop = &stop;
    o.progress = [&](const HuntProgress& p) { show_progress(status, o, p, before); };
    column = conform::column_of(name, o, hunt(o));
    column.state = a.state;
    column.shown = take_shown(o, column.unseen);
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    column.interrupted = stop;
    column.problem = problem_of(describe(error));
  }
  status.clear();
  save_divergences(a, o, check, scripts, column);
  return column;
}

void print_summary(const Page& page) {
  Table table({false, false, true, true, true, true, true, true}, {1, 0});
  table.add(
      {"subject", "versions", "cases", "structures", "cases/s", "known bugs", "limits", "new"});
  for (const Column& c : page.columns) {
    const auto count = [&](conform::Mark mark) {
      return std::to_string(std::count_if(c.divergences.begin(), c.divergences.end(),
                                          [&](const Divergence& d) { return d.mark == mark; }));
    };
    table.add({c.subject, conform::short_versions(c.versions), conform::number(c.cases),
               conform::number(c.structures), rate_text(c.cases_per_second()),
               count(conform::Mark::known), count(conform::Mark::not_promised),
               count(conform::Mark::fresh)});
  }
  print_out(table.text() + "\n");
}

/// What a reader has to look at: problems and new divergences.
void print_news(const Page& page) {
  const Paint paint(colour_wanted(1));
  for (const Column& c : page.columns) {
    if (!c.problem.empty()) {
      print_out(fmt::format("{} {}: {}\n", paint.yellow("NOT JUDGED"), c.subject, c.problem));
    }
    for (const std::string& s : c.shortfalls) {
      print_out(fmt::format("{} {}: {}\n", paint.red("SHORT"), c.subject, s));
    }
    for (const Divergence& d : c.divergences) {
      if (d.mark != conform::Mark::fresh) continue;
      print_out(fmt::format("{} {}: {} in {}\n  {}\n", paint.red("NEW"), c.subject, d.violation.law,
                            counted(d.cases, "case"), d.replay.empty() ? d.unshrunk : d.replay));
    }
  }
}

/// Entries that no case showed, and whether there are some that should have been seen.
bool print_unseen(const Page& page, bool quiet, bool silent) {
  const Paint paint(colour_wanted(1));
  std::vector<std::string> every;
  for (const auto& [name, subject] : known_frameworks().subjects) every.push_back(name);
  bool stale = false;
  for (const conform::Unseen& u : conform::unseen_in(page, every)) {
    stale = stale || u.stale;
    if (silent || (quiet && !u.stale)) continue;
    print_out(fmt::format("{} {}, in {}: {}\n", u.stale ? paint.red("STALE") : "not seen",
                          u.framework, counted(u.structures, "structure"),
                          conform::list_text(u.ids)));
  }
  return stale;
}

int status_of(const Page& page, bool stale) {
  const conform::Summary s = conform::summary_of(page);
  bool judged = false;
  bool interrupted = false;
  bool is_short = false;
  for (const Column& c : page.columns) {
    judged = judged || c.cases > c.not_judged;
    interrupted = interrupted || c.interrupted;
    is_short = is_short || !c.shortfalls.empty();
  }
  if (s.fresh > 0) return kBroken;
  if (interrupted) return kInterrupted;
  if (!judged) return kUsage;
  return is_short || stale ? kBroken : kHeld;
}

/// The page that --out has already, if it goes on; else an empty one.
Page page_to_resume(const ConformArguments& a, const Page& asked) {
  const fs::path file = fs::path(a.out) / "conform.json";
  if (!a.resume || !fs::exists(file)) return asked;
  Page page = page_from_files({file.string()}, "");
  if (page.seed != asked.seed || page.mix != asked.mix) {
    throw UsageError(
        fmt::format("--resume: {} has seed {} of the {} mix: ask for these, or for "
                    "another --out",
                    file.string(), page.seed, page.mix));
  }
  return page;
}

/// Whether the page has what is asked for; with --for, a hunt of any length is.
bool is_done(const Page& page, const std::string& subject, const ConformArguments& a) {
  const std::uint64_t structures =
      a.structures.empty() ? 0 : parse_whole("--structures", a.structures, 1);
  const std::uint64_t cases = a.cases.empty() ? 0 : parse_whole("--cases", a.cases, 1);
  return std::any_of(page.columns.begin(), page.columns.end(), [&](const Column& c) {
    const bool enough = !a.duration.empty() || (c.structures >= structures && c.cases >= cases);
    return c.subject == subject && c.state == a.state && enough && c.problem.empty() &&
           !c.interrupted;
  });
}

int conform_all(ConformArguments a) {
  if (a.subjects.empty() && a.from.empty() && !a.all) ask_for_names(a);
  if (a.out.empty() && !a.json) a.out = "rematch-page";
  const std::vector<std::string> subjects = subjects_of(a);
  check_python(subjects);
  (void)parse_mix(a.mix);
  prepare_threads(parse_jobs(a.jobs), a.quiet);
  if (!a.out.empty()) make_page_folders(a.out);
  Page page;
  if (a.from.empty()) {
    CheckArguments of_all;
    of_all.seed = a.seed.empty() ? "1" : a.seed;
    page.seed = hunt_options(of_all).seed;
    page.mix = a.mix;
    page = page_to_resume(a, page);
  } else {
    if (!a.seed.empty()) throw UsageError("--from has a seed already: leave out --seed");
    if (a.resume) throw UsageError("--resume goes on with --out, and --from with other pages");
    page = page_from_files(a.from, a.out);
    a.mix = page.mix;
  }
  bool cut_short = false;
  {
    StatusLine status(a.quiet);
    Scripts scripts;
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      if (a.resume && is_done(page, subjects[i], a)) continue;
      const std::string before = subjects.size() == 1 ? ""
                                                      : fmt::format("{} ({} of {}): ", subjects[i],
                                                                    i + 1, subjects.size());
      Column column = judge(a, subjects[i], page.seed, before, scripts, status);
      // An interrupt, or a framework that is not here, takes nothing off a page that has more.
      const bool has_more = std::any_of(
          page.columns.begin(), page.columns.end(),
          [&](const auto& c) { return c.subject == column.subject && c.cases > column.cases; });
      if (has_more && (column.interrupted || !column.problem.empty())) {
        cut_short = cut_short || column.interrupted;
        print_error(fmt::format("rematch: {} is not judged again, and keeps its row: {}\n",
                                column.subject,
                                column.problem.empty() ? "interrupted" : column.problem));
      } else {
        put(page, std::move(column));
      }
      // What comes next takes long, and may not end well.
      write_page(a.out, page);
    }
  }
  write_page(a.out, page);
  if (a.json) {
    print_out(conform::page_json(page));
  } else {
    if (!a.quiet) print_summary(page);
    print_news(page);
  }
  const bool stale = print_unseen(page, a.quiet, a.json);
  if (!a.json && !a.quiet) {
    print_out(fmt::format("{}\npage: {}\n", conform::subtitle(page),
                          (fs::path(a.out) / "conform.md").lexically_normal().string()));
  }
  const int status = status_of(page, stale);
  return status == kHeld && cut_short ? kInterrupted : status;
}

void declare_conform(Command& command) {
  auto a = std::make_shared<ConformArguments>();
  command.add("subjects", a->subjects, "SUBJECT", "Names or commands, as for check --subject");
  command.add_flag("--all", a->all, "Test every framework that `rematch subjects` lists");
  command.add("--structures", a->structures, "N",
              "Distinct models, plans and modes of each (default: 500; unlimited with --for)");
  command.add("--cases", a->cases, "N", "Number of cases of each");
  command.add(
      "--for", a->duration, "TIME",
      "Time for each: 60s, 5m, 1h; up to three times as long while fewer than 100 structures "
      "are judged; with --structures, the limit");
  command.add("--seed", a->seed, "S", "Seed, or \"random\" (default: 1)");
  command.add("--mix", a->mix, "MIX", "Mix of cases: standard or wide");
  command.add("--jobs", a->jobs, "N", "Threads (default: one for each core)");
  command.add("--limit", a->limit, "TIME",
              "Longest that one run may take (default 60s; 600s for a subject that compiles)");
  command.add("--out", a->out, "DIR",
              "Folder for conform.md, conform.json, and the case and script of each divergence "
              "(default: rematch-page, and none with --json)");
  command.add(
      "--from", a->from, "FILE",
      "The conform.json of an earlier page: its rows are copied to this page; implementations "
      "that you name are judged again");
  command.add_flag(
      "--resume", a->resume,
      "Skip implementations that --out has, if they were finished under the same --state");
  command.add("--state", a->state, "TEXT",
              "Version of rematch, such as a commit, which the page keeps with each row");
  command.add_flag("--json", a->json, "JSON instead of text");
  command.add_flag("--quiet", a->quiet, "Print only what is new, and errors");
  command.runs([a] { return conform_all(*a); });
}

}  // namespace

const CommandEntry conform_command{
    .name = "conform",
    .summary = "Test several implementations, and write one page: who keeps which laws",
    .examples =
        "  rematch conform\n"
        "  rematch conform pytorch jax --out page\n"
        "  rematch conform --from golden/conformance/conform.json --out page",
    .declare = declare_conform,
};

}  // namespace rematch::cli
