// One report, drawn in each of the four ways.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "properties/testing/shell.h"
#include "scenarios/report/json.h"
#include "scenarios/report/markdown.h"
#include "scenarios/report/svg.h"
#include "scenarios/report/terminal.h"
#include "scenarios/report/text.h"

namespace rematch::scenarios {
namespace {

using testing::contains;

const Scenario kStory{"a_story", "Why?", "a thread", "Because.", nullptr};

Report sample(bool holds = true) {
  Report report;
  report.say("See [the thread](https://example.org/a) and **mind** `a[i]` of a | b.");
  Table& table = report.table("Bytes", {"run", "a | b"});
  table.row({"plain", "1,234"});
  table.row({"checkpointed", "56"});
  report.chart({.title = "Bytes < time & \"space\"",
                .x_label = "steps",
                .y_label = "KiB",
                .kind = Chart::Kind::steps,
                .series = {{"plain", {0, 1, 2}, {1, 5, 2}}, {"other", {0, 1, 2}, {1, 2, 2}}}});
  report.claim(holds, "first claim");
  report.claim(true, "second claim");
  report.measured("12 ms");
  return report;
}

int count_of(const std::string& text, std::string_view part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("numbers are grouped when whole and have four digits when not") {
  CHECK(number_text(1234567) == "1,234,567");
  CHECK(number_text(-3) == "-3");
  CHECK(number_text(0.123456) == "0.1235");
  CHECK(number_text(26203.4) == "26,203");
}

TEST_CASE("text is wrapped between words, and no word is lost or split") {
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("a incomprehensible b", 5) ==
        std::vector<std::string>{"a", "incomprehensible", "b"});
  CHECK(wrapped("  spaced   out ", 80) == std::vector<std::string>{"spaced out"});
  // Columns, not bytes.
  CHECK(wrapped("●●● ●●●", 7) == std::vector<std::string>{"●●● ●●●"});
}

TEST_CASE("Markdown shows everything but what was measured") {
  const std::string text = markdown(kStory, sample());
  CHECK(text.starts_with("## a_story\n\n> Why?\n\nSource: a thread\n\n**In short.** Because.\n"));
  CHECK(contains(text, "| run | a \\| b |\n| --- | ---: |\n| plain | 1,234 |\n"));
  CHECK(contains(text, "](pictures/a_story-1.svg)"));
  CHECK(contains(text, "\n\n- [x] first claim\n- [x] second claim\n"));
  CHECK_FALSE(contains(text, "12 ms"));
  CHECK(contains(markdown(kStory, sample(false)), "- [ ] first claim"));
}

TEST_CASE("wrapping a paragraph makes no list, heading or quotation of it") {
  const std::string filler(113, 'x');
  for (const char* word : {"-", "+", "*", "#", "##", ">", "12.", "3)"}) {
    Report report;
    report.say(filler + " a b " + word + " c");
    CHECK(contains(markdown(kStory, report), filler + " a b " + word + " c\n"));
  }
  Report report;
  report.say(filler + " a b -1 c");
  CHECK(contains(markdown(kStory, report), filler + " a b\n-1 c\n"));
}

TEST_CASE("the terminal shows everything, without the marks of Markdown") {
  const std::string text = terminal_text(kStory, sample(false), 80, cli::Paint(false));
  CHECK(contains(text, "See the thread (https://example.org/a) and mind `a[i]` of a | b."));
  CHECK(contains(text, "FAILED first claim"));
  CHECK(contains(text, "holds  second claim"));
  CHECK(contains(text, "measured: 12 ms"));
  CHECK(contains(text, "█"));
  CHECK_FALSE(contains(text, "\033"));
  CHECK(contains(terminal_text(kStory, sample(), 80, cli::Paint(true)), "\033[32m"));
}

TEST_CASE("names of columns are wrapped where a table is too wide for the terminal") {
  Report report;
  report.table("t", {"a name of many words", "other"}).row({"1", "2"});
  const std::string wide = terminal_text(kStory, report, 60, cli::Paint(false));
  CHECK(contains(wide, "  a name of many words  other\n                     1      2\n"));
  const std::string narrow = terminal_text(kStory, report, 24, cli::Paint(false));
  CHECK(contains(narrow, "   a name\n  of many\n    words  other\n        1      2\n"));
}

TEST_CASE("JSON has every item in order, each named for what it is") {
  const nlohmann::ordered_json j = to_json(kStory, sample(false));
  CHECK(j["claims"] == 2);
  CHECK(j["failed"] == 1);
  REQUIRE(j["items"].size() == 6);
  const char* kNames[] = {"say", "table", "chart", "claim", "claim", "measured"};
  for (std::size_t i = 0; i < 6; ++i) CHECK(j["items"][i].contains(kNames[i]));
  CHECK(j["items"][2]["chart"]["series"][0]["y"] == std::vector<double>{1, 5, 2});
}

TEST_CASE("a picture takes the width that it is given and says what it shows") {
  const Report report = sample();
  const std::string text = svg(std::get<Chart>(report.items()[2]));
  const std::string root = text.substr(0, text.find('>'));
  CHECK(contains(root, "viewBox"));
  CHECK_FALSE(contains(root, " width="));
  CHECK_FALSE(contains(root, " height="));
  CHECK(contains(text, "<title>Bytes &lt; time &amp; &quot;space&quot;</title>"));
  for (const char* part : {"plain", "other", "steps", "KiB"}) CHECK(contains(text, part));
  // As many ends as beginnings.
  CHECK(count_of(text, "<text ") == count_of(text, "</text>"));
}

TEST_CASE("a step chart of many events stays small and keeps its peak") {
  Series series{"live", {}, {}};
  for (int i = 0; i < 100000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i % 100);
  }
  Chart chart{.title = "t", .x_label = "x", .y_label = "y", .kind = Chart::Kind::steps};
  chart.series = {series};
  CHECK(svg(chart).size() < 60000);
  // Among so many, a single high step is still drawn: up to the top of the plot.
  chart.series[0].y[56789] = 1000;
  const std::string picture = svg(chart);
  const std::size_t label = picture.find(">1,000</text>");
  REQUIRE(label != std::string::npos);
  const std::size_t line = picture.rfind("<path d=\"M", label);
  const std::size_t blank = picture.find(' ', line + 6);
  const std::string height = picture.substr(blank + 1, picture.find('L', blank) - blank - 1);
  CHECK(count_of(picture, "V" + height + "H") == 2);
}

TEST_CASE("bars name every category and print every value") {
  Chart chart{.title = "t", .x_label = "", .y_label = "bytes", .kind = Chart::Kind::bars};
  chart.series = {{"plain", {}, {1234, 0}}, {"checkpointed", {}, {0.5, 7}}};
  chart.categories = {"first", "second"};
  const std::string picture = svg(chart);
  Report report;
  report.chart(chart);
  const std::string text = terminal_text(kStory, report, 80, cli::Paint(false));
  for (const char* part : {"first", "second", "plain", "checkpointed", "1,234", "0.5", "bytes"}) {
    CHECK(contains(picture, part));
    CHECK(contains(text, part));
  }
}

TEST_CASE("charts with a single point, a flat line or nothing at all can be drawn") {
  for (const Series& series : {Series{"s", {3}, {4}}, Series{"s", {0, 1}, {2, 2}},
                               Series{"s", {0, 1}, {0, 0}}, Series{"s", {}, {}}}) {
    for (const Chart::Kind kind : {Chart::Kind::lines, Chart::Kind::steps}) {
      Chart chart{.title = "t", .x_label = "x", .y_label = "y", .kind = kind};
      chart.series = {series};
      const std::string picture = svg(chart);
      CHECK_FALSE(contains(picture, "nan"));
      CHECK_FALSE(contains(picture, "inf"));
      Report report;
      report.chart(chart);
      CHECK_FALSE(terminal_text(kStory, report, 80, cli::Paint(false)).empty());
    }
  }
}

}  // namespace rematch::scenarios
