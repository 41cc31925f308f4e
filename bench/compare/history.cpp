#include "bench/compare/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <utility>

#include "bench/compare/input.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

HistoryPoint point_of(const Side& side, const std::string& name) {
  HistoryPoint point;
  point.real_ns = median_time(side, name, Clock::real);
  point.cpu_ns = median_time(side, name, Clock::cpu);
  for (const ResultFile& file : side.files) {
    const BenchmarkRun* run = file.find(name);
    if (run == nullptr) continue;
    for (const auto& [counter, values] : run->exact) {
      for (const std::int64_t value : values) {
        std::int64_t& highest = point.exact[counter];
        highest = std::max(highest, value);
      }
    }
  }
  return point;
}

HistoryPoint read_point(const Input& json) {
  HistoryPoint point;
  if (const auto ns = json.find("real_ns")) point.real_ns = ns->positive();
  if (const auto ns = json.find("cpu_ns")) point.cpu_ns = ns->positive();
  for (const auto& [name, value] : json.fields()) {
    if (is_exact_counter(name)) point.exact[name] = value.whole();
  }
  return point;
}

HistoryEntry read_entry(const Input& json) {
  const Input format = json.at("format");
  if (format.whole() != kFormat) format.fail(fmt::format("format {}", kFormat));
  HistoryEntry entry;
  entry.commit = json.at("commit").text();
  entry.date = json.at("date").text();
  for (const auto& [name, value] : json.at("fingerprint").fields()) {
    entry.fingerprint[name] = value.text();
  }
  for (const auto& [name, value] : json.at("benchmarks").fields()) {
    entry.benchmarks[name] = read_point(value);
  }
  return entry;
}

void take_series(HistoryReport& report, const std::string& name) {
  HistorySeries series;
  series.name = name;
  for (std::size_t i = 0; i < report.entries.size(); ++i) {
    const auto at = report.entries[i].benchmarks.find(name);
    if (at == report.entries[i].benchmarks.end()) continue;
    const auto& ns = report.options.clock == Clock::cpu ? at->second.cpu_ns : at->second.real_ns;
    if (!ns) continue;
    series.entries.push_back(i);
    series.ns.push_back(*ns);
  }
  // Counted only.
  if (series.ns.empty()) return;
  report.series.push_back(std::move(series));
}

void find_changes(HistoryReport& report) {
  if (report.series.empty()) return;
  const double small = std::log1p(report.options.min_effect);
  // Bonferroni over all series and the tests of each.
  const double threshold =
      report.options.alpha / (kTestsPerSeries * static_cast<double>(report.series.size()));
  for (HistorySeries& series : report.series) {
    std::vector<double> logs;
    for (const double ns : series.ns) logs.push_back(std::log(ns));
    for (const LevelChange& c : level_changes(logs, threshold, small)) {
      if (std::fabs(c.after - c.before) >= small) series.changes.push_back(c);
    }
  }
}

void find_counter_steps(HistoryReport& report, const std::string& name) {
  for (const std::string_view counter : kExactCounters) {
    std::optional<std::int64_t> last;
    for (std::size_t i = 0; i < report.entries.size(); ++i) {
      const auto benchmark = report.entries[i].benchmarks.find(name);
      if (benchmark == report.entries[i].benchmarks.end()) continue;
      const auto value = benchmark->second.exact.find(std::string(counter));
      if (value == benchmark->second.exact.end()) continue;
      if (last && *last != value->second) {
        report.counters.push_back({name, std::string(counter), i, *last, value->second});
      }
      last = value->second;
    }
  }
}

/// What the series is at its end, as a logarithm.
double level_at_end(const HistorySeries& series) { return series.changes.back().after; }

/// The value of the counter at the end of the history.
std::int64_t value_at_end(const HistoryReport& report, const CounterStep& step) {
  std::int64_t value = step.after;
  for (const CounterStep& s : report.counters) {
    if (s.benchmark == step.benchmark && s.counter == step.counter) value = s.after;
  }
  return value;
}

std::string short_commit(const std::string& commit) { return commit.substr(0, 12); }

void report_findings(HistoryReport& report) {
  using Kind = Finding::Kind;
  const double small = std::log1p(report.options.min_effect);
  for (const HistorySeries& series : report.series) {
    for (const LevelChange& c : series.changes) {
      const bool remains = level_at_end(series) - c.before >= small;
      const Kind kind = c.after < c.before ? Kind::improvement
                        : remains          ? Kind::regression
                                           : Kind::note;
      report.findings.push_back({kind, change_sentence(report, series, c) +
                                           (kind == Kind::note ? "; undone since" : "")});
    }
  }
  for (const CounterStep& s : report.counters) {
    const bool rose = s.after > s.before;
    const bool remains = value_at_end(report, s) > s.before;
    CounterResult c;
    c.name = s.counter;
    c.change = rose ? CounterChange::rose : CounterChange::fell;
    c.base = s.before;
    c.head = s.after;
    report.findings.push_back({!rose     ? Kind::improvement
                               : remains ? Kind::regression
                                         : Kind::note,
                               fmt::format("{}, at commit {}{}", counter_sentence(s.benchmark, c),
                                           short_commit(report.entries[s.entry].commit),
                                           rose && !remains ? "; undone since" : "")});
  }
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.kind < b.kind; });
}

}  // namespace

std::string history_line(std::vector<ResultFile> files, const std::string& commit) {
  for (ResultFile& file : files) {
    if (file.commit.empty()) file.commit = commit;
    if (file.commit.empty()) {
      throw InputError(file.path +
                       ": expected a commit (rematch_commit in its context, or --commit)");
    }
    if (file.dirty) {
      throw InputError(file.path + ": expected a clean commit, got one with uncommitted changes");
    }
  }
  // Against itself: this checks that commits and fingerprints agree.
  const Sides sides = pair_sides(files, files);
  if (!sides.differences.empty()) {
    const FingerprintDifference& d = sides.differences.front();
    throw InputError(fmt::format("{}: {}: expected \"{}\" as in {}, got \"{}\"", d.got_file,
                                 d.field, d.expected, d.expected_file, d.got));
  }
  const ResultFile& first = sides.base.files.front();
  Json line;
  line["format"] = kFormat;
  line["commit"] = first.commit;
  line["date"] = first.date;
  line["fingerprint"] = first.fingerprint;
  line["benchmarks"] = Json::object();
  for (const ResultFile& file : sides.base.files) {
    for (const BenchmarkRun& run : file.benchmarks) {
      if (line["benchmarks"].contains(run.name)) continue;
      const HistoryPoint point = point_of(sides.base, run.name);
      Json& entry = line["benchmarks"][run.name] = Json::object();
      if (point.real_ns) entry["real_ns"] = *point.real_ns;
      if (point.cpu_ns) entry["cpu_ns"] = *point.cpu_ns;
      for (const auto& [counter, value] : point.exact) entry[counter] = value;
    }
  }
  return line.dump();
}

std::vector<HistoryEntry> read_history(const std::string& path) {
  std::istringstream text(read_text(path));
  std::vector<HistoryEntry> entries;
  std::size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    const nlohmann::json json = parse_json(line, place);
    entries.push_back(read_entry(Input(json, place)));
  }
  if (entries.empty()) throw InputError(path + ": expected one commit per line, got none");
  return entries;
}

HistoryReport examine_history(std::vector<HistoryEntry> entries, const std::string& since,
                              const Options& options) {
  if (entries.empty()) throw InputError("expected a history with an entry, got none");
  HistoryReport report;
  report.options = options;
  if (!since.empty()) {
    const auto from = std::find_if(entries.rbegin(), entries.rend(), [&](const HistoryEntry& e) {
      return e.commit.starts_with(since);
    });
    if (from == entries.rend()) {
      throw InputError(fmt::format("--since: no commit of the history begins with \"{}\"", since));
    }
    entries.erase(entries.begin(), from.base() - 1);
  }
  const std::map<std::string, std::string> fingerprint = entries.back().fingerprint;
  for (HistoryEntry& e : entries) {
    if (e.fingerprint == fingerprint) {
      report.entries.push_back(std::move(e));
    } else {
      ++report.left_out;
    }
  }
  const std::regex wanted(options.filter, std::regex::ECMAScript);
  for (const auto& [name, point] : report.entries.back().benchmarks) {
    if (!options.filter.empty() && !std::regex_search(name, wanted)) continue;
    if (options.judge_time) take_series(report, name);
    find_counter_steps(report, name);
  }
  find_changes(report);
  report_findings(report);
  return report;
}

int HistoryReport::exit_status() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.kind == Finding::Kind::regression; })
             ? 1
             : 0;
}

std::string change_sentence(const HistoryReport& report, const HistorySeries& series,
                            const LevelChange& c) {
  const std::size_t first = series.entries[c.first];
  const std::size_t until = series.entries[c.last];
  const std::string commit = short_commit(report.entries[first].commit);
  const double ratio = std::exp(c.after - c.before);
  const std::string amount = change_text(ratio);
  const auto commits = [&](std::size_t n) {
    return counted(static_cast<std::int64_t>(n), "commit");
  };
  const std::string times =
      fmt::format("{}, now {}", time_text(std::exp(c.before)), time_text(std::exp(c.after)));
  if (c.shape == LevelChange::Shape::drift) {
    return fmt::format("{} drifts: since commit {}: {} over {}: {}", series.name, commit, amount,
                       commits(until - first + 1), times);
  }
  return fmt::format("{} since commit {}: {} ({} ago): {}", series.name, commit, amount,
                     commits(report.entries.size() - 1 - first), times);
}

}  // namespace rematch::compare
