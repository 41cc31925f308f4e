#include <fmt/format.h>

#include "bench/compare/report.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

std::string row(const BenchmarkResult& b) {
  const TimeResult& t = b.time;
  const auto time = [](const std::optional<double>& ns) { return ns ? time_text(*ns) : "-"; };
  const std::string word = verdict_word(b);
  const bool loud = t.verdict == TimeVerdict::slower || t.verdict == TimeVerdict::faster;
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", markdown_text(b.name),
                     time(t.base_ns), time(t.head_ns), t.ratio ? change_text(*t.ratio) : "-",
                     t.ratio ? interval_text(t.low, t.high) : "-", t.pairs,
                     loud ? "**" + word + "**" : word);
}

/// Appends lines while they fit into a comment, and says how many did not.
class Comment {
 public:
  explicit Comment(std::string start) : text_(std::move(start)) {}
  void add(const std::string& line) { text_ += line; }
  void add_all(const std::vector<std::string>& lines, std::string_view what) {
    // Room for what follows the lists: folds, notes, this sentence.
    constexpr std::size_t kRoom = 4000;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (text_.size() + lines[i].size() > kLongestComment - kRoom) {
        text_ +=
            fmt::format("\n{} more {} did not fit; see the JSON report.\n", lines.size() - i, what);
        return;
      }
      text_ += lines[i];
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::vector<std::string> items(const Comparison& c, Finding::Kind kind) {
  std::vector<std::string> lines;
  for (const Finding& f : c.findings) {
    if (f.kind == kind) lines.push_back("- " + markdown_text(f.text) + "\n");
  }
  return lines;
}

}  // namespace

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '@') {
      out += "&#64;";
    } else if (std::string_view("\\`*_[]#|~").find(c) != std::string_view::npos) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string markdown_report(const Comparison& c) {
  Comment out(fmt::format("### Benchmarks: {}\n\n", markdown_text(headline(c))));
  out.add(fmt::format(
      "`{}` against `{}`, {}: {}\n", side_text(c.sides.head), side_text(c.sides.base),
      counted(static_cast<std::int64_t>(c.benchmarks.size()), "benchmark"), verdict_counts(c)));
  const auto list = [&](Finding::Kind kind, std::string_view title) {
    const std::vector<std::string> lines = items(c, kind);
    if (lines.empty()) return;
    out.add(fmt::format("\n**{}**\n\n", title));
    out.add_all(lines, "findings");
  };
  list(Finding::Kind::regression, "Regressions");
  list(Finding::Kind::improvement, "Improvements");
  for (std::size_t i = 0; i < std::min<std::size_t>(c.notes.size(), 10); ++i) {
    out.add(fmt::format("\n> {}\n", markdown_text(cli::cut(c.notes[i], 300))));
  }
  const std::vector<std::string> notes = items(c, Finding::Kind::note);
  if (!notes.empty()) {
    out.add(fmt::format("\n<details><summary>{}</summary>\n\n",
                        counted(static_cast<std::int64_t>(notes.size()), "other difference")));
    out.add_all(notes, "differences");
    out.add("\n</details>\n");
  }
  if (c.options.judge_time && !c.time_refused()) {
    out.add(
        fmt::format("\n<details><summary>Times of {}</summary>\n\n"
                    "| benchmark | base | new | change | {:.0f} % interval | pairs | verdict |\n"
                    "|---|--:|--:|--:|--:|--:|---|\n",
                    counted(static_cast<std::int64_t>(c.benchmarks.size()), "benchmark"),
                    c.options.level * 100));
    std::vector<std::string> rows;
    for (const std::size_t i : rows_in_order(c)) rows.push_back(row(c.benchmarks[i]));
    out.add_all(rows, "benchmarks");
    out.add(fmt::format(
        "\nWithin ±{:.4g} % is the same. A run of a program against itself has a false alarm "
        "in at most {:.4g} % of all runs.\n\n</details>\n",
        c.options.min_effect * 100, c.options.alpha * 100));
  }
  return out.text();
}

}  // namespace rematch::compare
