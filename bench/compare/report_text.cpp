#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "bench/compare/report.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

using cli::Paint;

int rank_of(TimeVerdict verdict) {
  switch (verdict) {
    case TimeVerdict::slower:
      return 0;
    case TimeVerdict::unsure:
      return 1;
    case TimeVerdict::faster:
      return 2;
    case TimeVerdict::same:
      return 3;
    case TimeVerdict::not_compared:
      break;
  }
  return 4;
}

std::string painted(const BenchmarkResult& b, const Paint& paint) {
  std::string word = verdict_word(b);
  const TimeVerdict verdict = b.time.verdict;
  if (verdict == TimeVerdict::slower) return paint.red(word);
  if (verdict == TimeVerdict::faster) return paint.green(word);
  if (verdict == TimeVerdict::unsure) return paint.yellow(word);
  return word;
}

std::string time_or_dash(const std::optional<double>& ns) { return ns ? time_text(*ns) : "-"; }

/// Such benchmarks are listed by their names.
bool is_counted_only(const BenchmarkResult& b) {
  return b.presence == Presence::both && !b.time.base_ns && !b.time.head_ns;
}

/// Which columns a table has beside the name, the change and the verdict.
struct Columns {
  bool times;
  bool interval;
  bool pairs;
  int longest_name;
};

cli::Table table_of(const Comparison& c, const Columns& columns, const Paint& paint) {
  std::vector<bool> right{false};
  std::vector<std::string> titles{"benchmark"};
  const auto column = [&](bool wanted, const char* title) {
    if (!wanted) return;
    titles.emplace_back(title);
    right.push_back(true);
  };
  column(columns.times, "base");
  column(columns.times, "new");
  column(true, "change");
  column(columns.interval, "interval");
  column(columns.pairs, "pairs");
  titles.emplace_back("verdict");
  for (std::string& title : titles) title = paint.dim(title);
  cli::Table table(right);
  table.add(titles);
  for (const std::size_t i : rows_in_order(c)) {
    const BenchmarkResult& b = c.benchmarks[i];
    if (is_counted_only(b)) continue;
    const TimeResult& t = b.time;
    std::vector<std::string> row{cli::cut(b.name, columns.longest_name)};
    if (columns.times) {
      row.push_back(time_or_dash(t.base_ns));
      row.push_back(time_or_dash(t.head_ns));
    }
    row.push_back(t.ratio ? change_text(*t.ratio) : "-");
    if (columns.interval) row.push_back(t.ratio ? interval_text(t.low, t.high) : "-");
    if (columns.pairs) row.push_back(t.pairs > 0 ? std::to_string(t.pairs) : "-");
    row.push_back(painted(b, paint));
    table.add(row);
  }
  return table;
}

int width_of(const std::string& text) {
  int widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, cli::display_width(line));
  }
  return widest;
}

std::string fitting_table(const Comparison& c, int width, const Paint& paint) {
  constexpr int kAny = 1000;
  std::string text;
  for (const Columns& columns :
       {Columns{true, true, true, kAny}, Columns{true, true, false, kAny},
        Columns{false, true, false, kAny}, Columns{false, false, false, kAny}}) {
    text = table_of(c, columns, paint).text();
    if (width_of(text) <= width) return text;
  }
  const Columns narrow{false, false, false, kAny};
  int longest = 0;
  for (const BenchmarkResult& b : c.benchmarks) {
    longest = std::max(longest, cli::display_width(b.name));
  }
  const int name = std::max(8, longest - (width_of(text) - width));
  return table_of(c, {narrow.times, narrow.interval, narrow.pairs, name}, paint).text();
}

std::string section(const Comparison& c, Finding::Kind kind, const std::string& title, int width) {
  std::string out;
  for (const Finding& f : c.findings) {
    if (f.kind == kind) out += "  " + wrapped(f.text, width - 2, 4) + "\n";
  }
  return out.empty() ? "" : "\n" + title + "\n" + out;
}

std::string unsure_section(const Comparison& c, int width, const Paint& paint) {
  std::string out;
  for (const BenchmarkResult& b : c.benchmarks) {
    if (b.time.verdict != TimeVerdict::unsure) continue;
    out += "  " + wrapped(b.name + ": " + unsure_reason(b.time, c), width - 2, 4) + "\n";
  }
  return out.empty() ? "" : "\n" + paint.bold("unsure") + "\n" + out;
}

/// The verdict of each benchmark that has no time, in few lines.
std::string counted_section(const Comparison& c, int width, const Paint& paint) {
  std::string out;
  for (const bool agree : {false, true}) {
    std::string names;
    int n = 0;
    for (const BenchmarkResult& b : c.benchmarks) {
      if (!is_counted_only(b) || counts_agree(b) != agree) continue;
      names += (n++ == 0 ? "" : ", ") + b.name;
    }
    if (n == 0) continue;
    const std::string text = fmt::format("{} {}: {}", n, agree ? "EQUAL" : "CHANGED", names);
    out += "  " + wrapped(text, width - 2, 4) + "\n";
  }
  return out.empty() ? "" : "\n" + paint.bold("counted, not timed") + "\n" + out;
}

}  // namespace

std::vector<std::size_t> rows_in_order(const Comparison& c) {
  std::vector<std::size_t> order(c.benchmarks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rank_of(c.benchmarks[a].time.verdict) < rank_of(c.benchmarks[b].time.verdict);
  });
  return order;
}

std::string wrapped(const std::string& text, int width, int indent) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    // A unit stays with its number.
    if (!words.empty() && (word[0] == '%' || word == "B" || word == "B,")) {
      words.back() += " " + word;
    } else {
      words.push_back(word);
    }
  }
  std::string out;
  int column = 0;
  for (const std::string& word : words) {
    const int size = cli::display_width(word);
    if (column > 0 && column + 1 + size > width) {
      out += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
      column = indent;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += size;
  }
  return out;
}

std::string text_report(const Comparison& c, int width, const Paint& paint) {
  const std::string verdict = wrapped(headline(c), width, 2);
  const int status = c.exit_status();
  std::string out = (status == 1   ? paint.red(verdict)
                     : status == 3 ? paint.yellow(verdict)
                                   : paint.green(verdict)) +
                    "\n";
  out += "  " +
         wrapped(fmt::format("base {}, new {}; {}; {}", side_text(c.sides.base),
                             side_text(c.sides.head),
                             counted(static_cast<std::int64_t>(c.benchmarks.size()), "benchmark"),
                             verdict_counts(c)),
                 width - 2, 4) +
         "\n";
  out += section(c, Finding::Kind::regression, paint.bold("regressions"), width);
  out += section(c, Finding::Kind::improvement, paint.bold("improvements"), width);
  out += section(c, Finding::Kind::note, paint.bold("also changed"), width);
  out += unsure_section(c, width, paint);
  if (!c.notes.empty()) {
    out += "\n" + paint.bold("note") + "\n";
    for (const std::string& note : c.notes) out += "  " + wrapped(note, width - 2, 4) + "\n";
  }
  if (c.options.judge_time) {
    out += "\n" + paint.bold("time") + "\n";
    out +=
        "  " +
        wrapped(fmt::format("{} time, new over base with its {:.0f} % interval; within ±{:.4g} % "
                            "is the same",
                            c.options.clock == Clock::cpu ? "CPU" : "real", c.options.level * 100,
                            c.options.min_effect * 100),
                width - 2, 4) +
        "\n";
    out += fitting_table(c, width, paint);
  }
  out += counted_section(c, width, paint);
  return out;
}

}  // namespace rematch::compare
