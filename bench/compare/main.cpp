// Compares the result files of two revisions. See bench/README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <exception>
#include <fstream>
#include <regex>

#include "bench/compare/history.h"
#include "bench/compare/input.h"
#include "bench/compare/report.h"
#include "engine/build/build_info.h"

namespace rematch::compare {
namespace {

using cli::UsageError;

constexpr int kUsage = 2;

constexpr std::string_view kFooter =
    R"(Exit status: 0 no regression, 1 regression, 2 wrong usage or unreadable input, 3 no regression
was found, but some times could not be judged.

Examples:
  rematch-compare base.json new.json
  rematch-compare --base a1.json a2.json a3.json --new b1.json b2.json b3.json
  rematch-compare runs/base runs/new --html report.html
  rematch-compare --history bench-history.jsonl
ci/compare builds two commits, measures them in turn and calls this program.)";

struct Arguments {
  std::vector<std::string> files;
  std::vector<std::string> base;
  std::vector<std::string> head;
  std::string min_effect = "2";
  std::string clock = "auto";
  Options options;
  bool no_time = false;
  bool json = false;
  bool markdown = false;
  std::string html;
  std::vector<std::string> timelines;
  std::vector<std::string> labels;
  std::string history;
  std::string since;
  std::vector<std::string> line_of;
  std::string commit;
};

double parse_percent(std::string text) {
  if (text.ends_with('%')) text.pop_back();
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= 0) || value > 1000) {
    throw UsageError(fmt::format(
        "--min-effect: expected a percentage from 0 to 1000, such as 2, got \"{}\"", text));
  }
  return value / 100;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw UsageError(fmt::format("--html: cannot write {}", path));
}

void add_options(CLI::App& app, Arguments& a) {
  app.add_option("files", a.files, "Result files, or folders of them: BASE NEW")->type_name("FILE");
  app.add_option("--base", a.base, "Files of the base, in the order in which they ran")
      ->type_name("FILE");
  app.add_option(
         "--new", a.head,
         "Files of the new side, each paired with the file of the base at the same position")
      ->type_name("FILE");
  app.add_option("--min-effect", a.min_effect, "Smallest difference of times to report, in percent")
      ->capture_default_str()
      ->type_name("PERCENT");
  app.add_option("--alpha", a.options.alpha, "Probability of a false alarm in a whole run")
      ->capture_default_str()
      ->check(CLI::Range(1e-9, 0.5))
      ->type_name("P");
  app.add_option("--looks", a.options.looks,
                 "Maximum number of times that these measurements are judged")
      ->capture_default_str()
      ->check(CLI::Range(1, 100))
      ->type_name("N");
  app.add_option("--filter", a.options.filter, "Only benchmarks whose name matches")
      ->type_name("REGEX");
  app.add_option(
         "--clock", a.clock,
         "Clock to compare; auto uses cpu if single-threaded processes had to wait for a core")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "real", "cpu"}))
      ->type_name("CLOCK");
  app.add_flag("--no-time", a.no_time, "Compare exact counters only");
  app.add_flag("--allow-missing", a.options.allow_missing,
               "Do not count missing benchmarks or counters as regressions");
  auto* json = app.add_flag("--json", a.json, "JSON instead of text");
  app.add_flag("--markdown", a.markdown, "Markdown for a comment on a pull request")
      ->excludes(json);
  auto* html = app.add_option("--html", a.html, "Also write an HTML report into this file")
                   ->type_name("FILE");
  app.add_option("--timelines", a.timelines,
                 "For the HTML report: the output of `rematch show --json` on each side")
      ->expected(2)
      ->needs(html)
      ->type_name("FILE");
  app.add_option("--labels", a.labels, "Names of the two sides, instead of their commits")
      ->expected(2)
      ->type_name("TEXT");
  auto* history = app.add_option("--history", a.history, "Look for changes over many commits")
                      ->type_name("FILE");
  app.add_option("--since", a.since, "With --history: start at this commit")
      ->needs(history)
      ->type_name("COMMIT");
  auto* line = app.add_option("--history-line", a.line_of, "Print one history line for these files")
                   ->type_name("FILE");
  app.add_option("--commit", a.commit,
                 "With --history-line: the commit of files that do not name one")
      ->needs(line)
      ->type_name("COMMIT");
}

Sides sides_of(const Arguments& a) {
  const bool listed = !a.base.empty() || !a.head.empty();
  if (!listed && a.files.size() == 2) return read_sides({a.files[0]}, {a.files[1]});
  if (listed && a.files.empty() && !a.base.empty() && !a.head.empty()) {
    return read_sides(a.base, a.head);
  }
  throw UsageError("expected BASE NEW, or --base FILE... --new FILE...; see --help");
}

/// Those of the command line, or those that both sides name.
std::optional<TimelinePairs> timelines_of(const Arguments& a, const Sides& sides) {
  if (!a.timelines.empty()) {
    return pair_timelines(read_timelines(a.timelines[0]), read_timelines(a.timelines[1]));
  }
  const auto named = [](const Side& side) {
    const auto at = std::find_if(side.files.begin(), side.files.end(),
                                 [](const ResultFile& f) { return !f.timelines.empty(); });
    return at == side.files.end() ? std::string() : at->timelines;
  };
  const std::string base = named(sides.base);
  const std::string head = named(sides.head);
  if (base.empty() || head.empty()) return std::nullopt;
  return pair_timelines(read_timelines(base), read_timelines(head));
}

int compare_files(const Arguments& a) {
  Sides sides = sides_of(a);
  if (!a.labels.empty()) {
    sides.base.label = printable(a.labels[0]);
    sides.head.label = printable(a.labels[1]);
  }
  const Comparison c = compare(std::move(sides), a.options);
  std::optional<HistoryReport> history;
  if (!a.history.empty()) {
    history = examine_history(read_history(a.history), a.since, a.options);
  }
  if (!a.html.empty()) {
    const std::optional<TimelinePairs> timelines = timelines_of(a, c.sides);
    const Extras extras{timelines ? &*timelines : nullptr, history ? &*history : nullptr};
    write_file(a.html, html_report(c, extras));
  }
  const cli::Paint paint(cli::colour_wanted(1));
  cli::print_out(a.json       ? json_report(c)
                 : a.markdown ? markdown_report(c)
                              : text_report(c, cli::terminal_width(1), paint));
  return c.exit_status();
}

int show_history(const Arguments& a) {
  const HistoryReport report = examine_history(read_history(a.history), a.since, a.options);
  if (!a.html.empty()) throw UsageError("--html: expected result files beside --history");
  const cli::Paint paint(cli::colour_wanted(1));
  cli::print_out(a.json       ? history_json(report)
                 : a.markdown ? history_markdown(report)
                              : history_text(report, cli::terminal_width(1), paint));
  return report.exit_status();
}

int print_line(const Arguments& a) {
  std::vector<ResultFile> files;
  for (const std::string& path : expand_folders(a.line_of)) files.push_back(read_result_file(path));
  cli::print_out(history_line(std::move(files), a.commit) + "\n");
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Compares the benchmark results of two commits: exact counters exactly, times statistically.",
      "rematch-compare"};
  app.footer(std::string(kFooter));
  Arguments a;
  add_options(app, a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  a.options.min_effect = parse_percent(a.min_effect);
  a.options.clock = a.clock == "cpu"    ? Clock::cpu
                    : a.clock == "real" ? Clock::real
                                        : Clock::automatic;
  a.options.judge_time = !a.no_time;
  if (!a.line_of.empty()) return print_line(a);
  const bool has_files = !a.files.empty() || !a.base.empty() || !a.head.empty();
  if (!a.history.empty() && !has_files) return show_history(a);
  return compare_files(a);
}

}  // namespace
}  // namespace rematch::compare

int main(int argc, char** argv) {
  using namespace rematch;
  try {
    require_cpu();
    const int status = compare::run(argc, argv);
    if (!cli::print_failed()) return status;
    cli::print_error("rematch-compare: standard output could not be written\n");
  } catch (const std::regex_error& e) {
    cli::print_error(
        fmt::format("rematch-compare: --filter: not a regular expression: {}\n", e.what()));
  } catch (const std::exception& e) {
    cli::print_error(fmt::format("rematch-compare: {}\n", e.what()));
  }
  return 2;
}
