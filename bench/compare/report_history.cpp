#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/compare/history.h"
#include "bench/compare/report.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

using Json = nlohmann::ordered_json;

std::size_t longest_series(const HistoryReport& report) {
  std::size_t longest = 0;
  for (const HistorySeries& s : report.series) longest = std::max(longest, s.ns.size());
  return longest;
}

std::vector<std::string> notes(const HistoryReport& report) {
  std::vector<std::string> list;
  if (report.left_out > 0) {
    list.push_back(fmt::format(
        "{} left out: another machine, compiler or build than that of the last one",
        report.left_out == 1 ? "1 commit is" : fmt::format("{} commits are", report.left_out)));
  }
  if (!report.series.empty() && longest_series(report) < kFewestPoints) {
    list.push_back(fmt::format("a change of time is looked for in {} commits or more; there {} {}",
                               kFewestPoints, longest_series(report) == 1 ? "is" : "are",
                               longest_series(report)));
  }
  return list;
}

std::string_view word_for(Finding::Kind kind) {
  return kind == Finding::Kind::regression    ? "regression"
         : kind == Finding::Kind::improvement ? "improvement"
                                              : "note";
}

}  // namespace

std::string history_headline(const HistoryReport& report) {
  int regressions = 0;
  for (const Finding& f : report.findings) {
    regressions += f.kind == Finding::Kind::regression ? 1 : 0;
  }
  const std::string over = counted(static_cast<std::int64_t>(report.entries.size()), "commit");
  if (regressions > 0) {
    return fmt::format("REGRESSION: {} over {}", counted(regressions, "regression"), over);
  }
  return "NO REGRESSION over " + over;
}

std::string history_text(const HistoryReport& report, int width, const cli::Paint& paint) {
  const std::string line = wrapped(history_headline(report), width, 2);
  std::string out = (report.exit_status() == 1 ? paint.red(line) : paint.green(line)) + "\n";
  const auto section = [&](Finding::Kind kind, const char* title) {
    std::string text;
    for (const Finding& f : report.findings) {
      if (f.kind == kind) text += "  " + wrapped(f.text, width - 2, 4) + "\n";
    }
    if (!text.empty()) out += "\n" + paint.bold(title) + "\n" + text;
  };
  section(Finding::Kind::regression, "regressions");
  section(Finding::Kind::improvement, "improvements");
  section(Finding::Kind::note, "also changed");
  for (const std::string& note : notes(report)) {
    out += "\n" + paint.bold("note") + "\n  " + wrapped(note, width - 2, 4) + "\n";
  }
  return out;
}

std::string history_markdown(const HistoryReport& report) {
  std::string out = fmt::format("### Benchmarks over time: {}\n", history_headline(report));
  for (const Finding& f : report.findings) {
    const std::string line = fmt::format("\n- {}: {}", word_for(f.kind), markdown_text(f.text));
    if (out.size() + line.size() > kLongestComment) {
      out += "\n\nMore findings did not fit; see the JSON report.";
      break;
    }
    out += line;
  }
  for (const std::string& note : notes(report)) out += "\n\n> " + note;
  return out + "\n";
}

std::string history_json(const HistoryReport& report) {
  Json j;
  j["format"] = 1;
  j["headline"] = history_headline(report);
  j["exit_status"] = report.exit_status();
  j["commits"] = Json::array();
  for (const HistoryEntry& e : report.entries) {
    j["commits"].push_back({{"commit", e.commit}, {"date", e.date}});
  }
  j["left_out"] = report.left_out;
  j["notes"] = notes(report);
  j["findings"] = Json::array();
  for (const Finding& f : report.findings) {
    j["findings"].push_back({{"kind", word_for(f.kind)}, {"text", f.text}});
  }
  j["series"] = Json::array();
  for (const HistorySeries& s : report.series) {
    Json changes = Json::array();
    for (const LevelChange& c : s.changes) {
      changes.push_back(
          {{"shape", c.shape == LevelChange::Shape::step ? "step" : "drift"},
           {"commit", report.entries[s.entries[c.first]].commit},
           {"last_commit", report.entries[s.entries[c.last]].commit},
           {"ratio", std::stod(fmt::format("{:.6g}", std::exp(c.after - c.before)))}});
    }
    j["series"].push_back(
        {{"name", s.name}, {"commits", s.entries}, {"ns", s.ns}, {"changes", changes}});
  }
  return j.dump(2) + "\n";
}

}  // namespace rematch::compare
