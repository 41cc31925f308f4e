#include "bench/compare/report.h"
#include "properties/testing/shell.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/compare/html_charts.h"
#include "bench/compare/testing/example.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

using testing::contains;

const cli::Paint kPlain(false);

std::string html() {
  const TimelinePairs timelines = example_timelines();
  const HistoryReport history = examine_history(example_history(), "", Options{});
  return html_report(example_comparison(), {&timelines, &history});
}

int widest(const std::string& text) {
  int columns = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    columns = std::max(columns, cli::display_width(line));
  }
  return columns;
}

}  // namespace

TEST_CASE("reports are those that were approved") {
  CHECK(golden_difference("report.txt", text_report(example_comparison(), 100, kPlain)) == "");
  CHECK(golden_difference("report.md", markdown_report(example_comparison())) == "");
  CHECK(golden_difference("report.json", json_report(example_comparison())) == "");
  CHECK(golden_difference("report.html", html()) == "");
  const HistoryReport history = examine_history(example_history(), "", Options{});
  CHECK(golden_difference("history.txt", history_text(history, 100, kPlain)) == "");
  CHECK(golden_difference("history.md", history_markdown(history)) == "");
  CHECK(golden_difference("history.json", history_json(history)) == "");
}

TEST_CASE("a golden that differs is noticed") {
  CHECK_FALSE(golden_difference("report.txt", "something else\n").empty());
}

TEST_CASE("the example has every verdict") {
  const Comparison c = example_comparison();
  for (const TimeVerdict verdict : {TimeVerdict::same, TimeVerdict::faster, TimeVerdict::slower,
                                    TimeVerdict::unsure, TimeVerdict::not_compared}) {
    CHECK(c.count(verdict) > 0);
  }
}

TEST_CASE("a text report fits the terminal, down to 40 columns") {
  for (const int width : {40, 60, 80, 100, 200}) {
    const std::string text = text_report(example_comparison(), width, kPlain);
    INFO(width << ":\n" << text);
    CHECK(widest(text) <= width);
    CHECK(contains(text, "SLOWER"));
  }
}

TEST_CASE("colour adds escape sequences and nothing else") {
  std::string painted = text_report(example_comparison(), 100, cli::Paint(true));
  CHECK(contains(painted, "\033["));
  for (std::size_t at = painted.find('\033'); at != std::string::npos; at = painted.find('\033')) {
    painted.erase(at, painted.find('m', at) - at + 1);
  }
  CHECK(painted == text_report(example_comparison(), 100, kPlain));
}

TEST_CASE(
    "a comment on a pull request stays below the size that is allowed, and says what it left out") {
  Comparison c = example_comparison();
  const BenchmarkResult one = c.benchmarks[0];
  for (int i = 0; i < 3000; ++i) {
    c.benchmarks.push_back(one);
    c.findings.push_back({Finding::Kind::regression, "something rose " + std::to_string(i)});
  }
  const std::string text = markdown_report(c);
  CHECK(text.size() <= kLongestComment);
  CHECK(contains(text, "more findings did not fit"));
  CHECK(text.find("**Regressions**") < text.find("<details>"));
}

TEST_CASE("names are text in every format, whatever they are") {
  CHECK(markdown_text("a|b<c>@d`e_f*[g]") == "a\\|b&lt;c&gt;&#64;d\\`e\\_f\\*\\[g\\]");
  CHECK(escaped("<a href=\"x\">&") == "&lt;a href=&quot;x&quot;&gt;&amp;");
  CHECK(contains(html(), "a&lt;b&gt;&amp;|`_name"));
  CHECK_FALSE(contains(html(), "a<b>"));
}

TEST_CASE("the page needs nothing but itself") {
  std::string page = html();
  // Pictures name what they are written in, which nobody fetches.
  constexpr std::string_view kLanguage = "xmlns=\"http://www.w3.org/2000/svg\"";
  for (std::size_t at; (at = page.find(kLanguage)) != std::string::npos;) {
    page.erase(at, kLanguage.size());
  }
  for (const char* foreign : {"http:", "https:", "<script", "<link", "@import", "url("}) {
    INFO(foreign);
    CHECK_FALSE(contains(page, foreign));
  }
  CHECK(contains(page, "prefers-color-scheme: dark"));
}

TEST_CASE("the JSON report is valid without any time") {
  Options options;
  options.judge_time = false;
  const auto j = nlohmann::json::parse(json_report(example_comparison(options)));
  CHECK(j["benchmarks"][0]["time"]["interval"].is_null());
  CHECK(j["exit_status"] == 1);
}

TEST_CASE("amounts are written so that a change never reads as none") {
  CHECK(change_text(1.0314) == "+3.1 %");
  CHECK(change_text(0.99999) == "+0.0 %");
  CHECK(change_text(0.5) == "-50.0 %");
  CHECK(change_text(12) == "+1100 %");
  CHECK(exact_change_text(79000000, 79000004) == "+0.0000051 %");
  CHECK(exact_change_text(100, 50) == "-50.0 %");
  CHECK(interval_text(0, std::numeric_limits<double>::infinity()) == "any");
  CHECK(time_text(0.5) == "0.50 ns");
  CHECK(time_text(999.4) == "999 ns");
  CHECK(time_text(999.6) == "1.00 us");
  CHECK(time_text(12.34e6) == "12.3 ms");
  CHECK(time_text(5e12) == "5000 s");
  CHECK(wrapped("rose by 4 B and 5 %", 9, 2) == "rose by\n  4 B and\n  5 %");
}

}  // namespace rematch::compare
