#include "properties/output/chart.h"

#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "properties/testing/shell.h"

namespace rematch::cli {
namespace {

using testing::contains;

Chart sample() {
  return {.title = "Bytes < time & \"space\"",
          .x_label = "steps",
          .y_label = "KiB",
          .kind = Chart::Kind::steps,
          .series = {{"plain", {0, 1, 2}, {1, 5, 2}}, {"other", {0, 1, 2}, {1, 2, 2}}}};
}

/// Values that rise to `height` and fall again to zero, in two phases.
Chart triangle(int height) {
  std::vector<std::int64_t> values;
  for (int i = 1; i <= height; ++i) values.push_back(i);
  for (int i = height; i >= 0; --i) values.push_back(i);
  Chart chart{.title = "t", .x_label = "events", .y_label = "bytes", .kind = Chart::Kind::steps};
  chart.series = {over_events("", values)};
  chart.phases = {{0, "forward"}, {static_cast<double>(height), "backward"}};
  return chart;
}

std::string plain_text(const Chart& chart, int width = 80) {
  return chart_text(chart, scale_of({&chart, 1}), width, Paint(false));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

int count_of(const std::string& text, std::string_view part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("charts at one scale fit into it, and what y is a length of begins at zero") {
  const Chart charts[] = {triangle(8), triangle(20)};
  const Scale scale = scale_of(charts);
  CHECK(scale.x.low == 0);
  CHECK(scale.x.high == 41);
  CHECK(scale.y.low == 0);
  CHECK(scale.y.high == 20);
}

TEST_CASE("lines far from zero fill the picture") {
  Chart chart{.title = "t", .x_label = "x", .y_label = "y"};
  chart.series = {{"s", {0, 1}, {100, 102}}};
  CHECK(scale_of({&chart, 1}).y.low == 100);
}

TEST_CASE("a picture takes the width that it is given and says what it shows") {
  const std::string text = svg(sample());
  const std::string root = text.substr(0, text.find('>'));
  CHECK(contains(root, "viewBox"));
  CHECK_FALSE(contains(root, " width="));
  CHECK_FALSE(contains(root, " height="));
  CHECK(contains(text, "<title>Bytes &lt; time &amp; &quot;space&quot;</title>"));
  for (const char* part : {"plain", "other", "steps", "KiB"}) CHECK(contains(text, part));
  // As many ends as beginnings.
  CHECK(count_of(text, "<text ") == count_of(text, "</text>"));
}

TEST_CASE("charts below each other have one title, one legend and one scale") {
  Chart charts[] = {sample(), sample()};
  for (Chart& chart : charts) chart.title = "panel";
  charts[1].series[0].y = {1, 50, 2};
  const std::string text = svg("both <of them>", charts);
  CHECK(count_of(text, "both &lt;of them&gt;</t") == 2);
  CHECK(count_of(text, ">panel, KiB</text>") == 2);
  CHECK(count_of(text, ">plain</text>") == 1);
  CHECK(count_of(text, ">steps</text>") == 1);
  CHECK(count_of(text, ">50</text>") == 2);
}

TEST_CASE("phases and levels are drawn where they are and by name") {
  Chart chart = triangle(50);
  chart.levels = {{50, "peak 50"}};
  const std::string text = svg(chart);
  for (const char* name : {"forward", "backward", "peak 50"}) {
    CHECK(count_of(text, ">" + std::string(name) + "</text>") == 1);
  }
  CHECK(count_of(text, "stroke-dasharray=\"5 4\"") == 1);
  CHECK(count_of(text, "<rect") == 1);
  // A phase with no room for its name has none.
  chart.phases = {{0, "forward"}, {99, "backward"}};
  CHECK_FALSE(contains(svg(chart), "backward"));
}

TEST_CASE("a title whose words are too long is cut, and whole for those who ask") {
  Chart chart = sample();
  chart.title = std::string(200, 'x');
  CHECK(contains(svg(chart), "<title>" + chart.title + "</title>"));
  CHECK_FALSE(contains(svg(chart), ">" + chart.title + "</text>"));
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
  const std::string text = plain_text(chart);
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
      CHECK_FALSE(plain_text(chart).empty());
    }
  }
}

TEST_CASE("as text the highest column touches the top, and phases are named below") {
  const std::vector<std::string> lines = lines_of(plain_text(triangle(8)));
  REQUIRE(lines.size() == 12);
  CHECK(contains(lines[1], "8 │"));
  CHECK(contains(lines[1], "█"));
  CHECK(contains(lines[8], "0 │"));
  CHECK(contains(lines[9], "└┬─"));
  CHECK(contains(lines[10], "forward"));
  CHECK(contains(lines[10], "backward"));
  CHECK(contains(lines[11], "0 to 17, events"));
}

TEST_CASE("a long series is folded into the width that there is as text, its peak kept") {
  Chart chart = triangle(1000);
  chart.series[0].y[777] = 5000;
  const std::string text = plain_text(chart, 60);
  for (const std::string& line : lines_of(text)) CHECK(display_width(line) <= 60);
  CHECK(contains(lines_of(text)[1], "5,000 │"));
  CHECK(contains(lines_of(text)[1], "█"));
}

TEST_CASE("a series of nothing says so") {
  Chart chart = triangle(3);
  chart.series[0] = {};
  CHECK(contains(plain_text(chart), "nothing was recorded"));
}

}  // namespace rematch::cli
