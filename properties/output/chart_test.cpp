#include "properties/output/chart.h"

#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "properties/testing/shell.h"

namespace rematch::cli {
namespace {

using testing::contains;

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

TEST_CASE("bars name every category and print every value") {
  Chart chart{.title = "t", .x_label = "", .y_label = "bytes", .kind = Chart::Kind::bars};
  chart.series = {{"plain", {}, {1234, 0}}, {"checkpointed", {}, {0.5, 7}}};
  chart.categories = {"first", "second"};
  const std::string text = plain_text(chart);
  for (const char* part : {"first", "second", "plain", "checkpointed", "1,234", "0.5", "bytes"}) {
    CHECK(contains(text, part));
  }
}

TEST_CASE("charts with a single point, a flat line or nothing at all can be drawn") {
  for (const Series& series : {Series{"s", {3}, {4}}, Series{"s", {0, 1}, {2, 2}},
                               Series{"s", {0, 1}, {0, 0}}, Series{"s", {}, {}}}) {
    for (const Chart::Kind kind : {Chart::Kind::lines, Chart::Kind::steps}) {
      Chart chart{.title = "t", .x_label = "x", .y_label = "y", .kind = kind};
      chart.series = {series};
      CHECK_FALSE(contains(plain_text(chart), "nan"));
      CHECK_FALSE(contains(plain_text(chart), "inf"));
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
