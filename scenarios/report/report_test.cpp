#include "scenarios/report/report.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <stdexcept>

namespace rematch::scenarios {

TEST_CASE("a report keeps what it is told in order, and a table stays where it is") {
  Report report;
  report.say("first");
  Table& table = report.table("bytes", {"run", "peak"});
  for (int i = 0; i < 100; ++i) report.claim(i != 7, "claim");
  table.row({"plain", "12"});
  REQUIRE(report.items().size() == 102);
  CHECK(std::get<Paragraph>(report.items()[0]).markdown == "first");
  CHECK(std::get<Table>(report.items()[1]).rows() ==
        std::vector<std::vector<std::string>>{{"plain", "12"}});
  CHECK(report.claims() == 100);
  CHECK(report.failed() == 1);
}

TEST_CASE("a row needs a cell for each column") {
  Report report;
  Table& table = report.table("bytes", {"run", "peak"});
  CHECK_THROWS_AS(table.row({"plain"}), std::invalid_argument);
  CHECK_THROWS_AS(table.row({"plain", "12", "13"}), std::invalid_argument);
  CHECK(table.rows().empty());
}

TEST_CASE("a chart whose numbers cannot be drawn is refused") {
  Report report;
  Chart chart{.title = "t", .x_label = "x", .y_label = "y"};
  CHECK_THROWS_AS(report.chart(chart), std::invalid_argument);
  chart.series = {{"s", {0, 1}, {1}}};
  CHECK_THROWS_AS(report.chart(chart), std::invalid_argument);
  chart.series = {{"s", {1, 0}, {1, 2}}};
  CHECK_THROWS_AS(report.chart(chart), std::invalid_argument);
  chart.series = {{"s", {0, 1}, {1, std::numeric_limits<double>::quiet_NaN()}}};
  CHECK_THROWS_AS(report.chart(chart), std::invalid_argument);
  chart.series = {{"s", {0, 1}, {1, 2}}};
  CHECK_NOTHROW(report.chart(chart));
  chart.kind = Chart::Kind::bars;
  CHECK_THROWS_AS(report.chart(chart), std::invalid_argument);
  chart.series = {{"s", {}, {1, 2}}};
  chart.categories = {"a", "b"};
  CHECK_NOTHROW(report.chart(chart));
}

}  // namespace rematch::scenarios
