#include "properties/output/terminal.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/cli/chart.h"
#include "properties/cli/svg.h"

namespace rematch::cli {
namespace {

std::vector<TimelinePoint> triangle(int height) {
  std::vector<TimelinePoint> points;
  for (int i = 1; i <= height; ++i) points.push_back({i, 0, 0, Moment::after_forward, 0});
  for (int i = height; i >= 0; --i) points.push_back({i, 0, 0, Moment::after_backward, 1});
  return points;
}

}  // namespace

TEST_CASE("numbers, bytes and durations read as people write them") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(bytes_text(10239) == "10,239 B");
  CHECK(bytes_text(10240) == "10.0 KiB (10,240 B)");
  CHECK(parse_duration("90") == 90);
  CHECK(parse_duration("0.5s") == 0.5);
  CHECK(parse_duration("5m") == 300);
  CHECK(parse_duration("1h") == 3600);
  for (const char* bad : {"", "s", "-1s", "0", "nan", "1d", "1 s", "inf"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_duration(bad), UsageError);
  }
}

TEST_CASE("widths are counted in characters that are seen") {
  CHECK(display_width("█░") == 2);
  CHECK(display_width(Paint(true).red("ab")) == 2);
  CHECK(padded("ab", 4) == "ab  ");
  CHECK(padded("ab", 4, true) == "  ab");
  CHECK(cut("abcdef", 4) == "abc…");
  CHECK(cut("abcd", 4) == "abcd");
}

TEST_CASE("paint that is off leaves text alone") {
  CHECK(Paint(false).red("x") == "x");
  CHECK(Paint(true).red("") == "");
}

TEST_CASE("a chart's highest column touches the top and an empty one shows nothing") {
  const std::vector<TimelinePoint> points = triangle(8);
  const std::span<const TimelinePoint> all[] = {points};
  const ChartScale scale = common_scale(all, 80);
  CHECK(scale.top == 8);
  CHECK(scale.events_per_column == 1);
  const std::string text = chart(points, scale, Paint(false));
  const std::string top = text.substr(0, text.find('\n'));
  CHECK(top.find("8 B") != std::string::npos);
  CHECK(top.find("██") != std::string::npos);
  CHECK(text.find("forward") != std::string::npos);
}

TEST_CASE("a long timeline is folded into the width there is, peaks kept") {
  const std::vector<TimelinePoint> points = triangle(1000);
  const std::span<const TimelinePoint> all[] = {points};
  const ChartScale scale = common_scale(all, 60);
  const std::string text = chart(points, scale, Paint(false));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    CHECK(display_width(text.substr(begin, end - begin)) <= 60);
    begin = end + 1;
  }
  CHECK(text.substr(0, text.find('\n')).find("█") != std::string::npos);
}

TEST_CASE("a chart of nothing says so") {
  CHECK(chart({}, {}, Paint(false)).find("no timeline") != std::string::npos);
}

TEST_CASE("an SVG title cannot break out of its element") {
  const std::string svg = memory_svg(triangle(3), triangle(4), "<a> & \"b\"");
  CHECK(svg.find("<a>") == std::string::npos);
  CHECK(svg.find("&lt;a&gt; &amp;") != std::string::npos);
}

TEST_CASE("a table aligns its columns") {
  Table table({false, true});
  table.add({"name", "bytes"});
  table.add({"a", "1"});
  CHECK(table.text() == "  name  bytes\n  a         1\n");
}

}  // namespace rematch::cli
