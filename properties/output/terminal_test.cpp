#include "properties/output/terminal.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

namespace rematch::cli {
TEST_CASE("numbers, bytes and durations read as people write them") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(bytes_text(10239) == "10,239 B");
  CHECK(bytes_text(10240) == "10.0 KiB (10,240 B)");
  CHECK(parse_duration("--for", "0.5s") == 0.5);
  CHECK(parse_duration("--for", "5m") == 300);
  CHECK(parse_duration("--for", "1h") == 3600);
  for (const char* bad : {"", "s", "-1s", "0s", "90", "nan", "1d", "1 s", "inf", "721h"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_duration("--for", bad), UsageError);
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

TEST_CASE("numbers are grouped when whole and have four digits when not") {
  CHECK(number_text(1234567) == "1,234,567");
  CHECK(number_text(-3) == "-3");
  CHECK(number_text(0.123456) == "0.1235");
  CHECK(number_text(26203.4) == "26,203");
}

TEST_CASE("a slow hunt has a rate that is not 0") {
  CHECK(rate_text(12345.6) == "12,346");
  CHECK(rate_text(10) == "10");
  CHECK(rate_text(9.96) == "10.0");
  CHECK(rate_text(1.12) == "1.1");
  CHECK(rate_text(0.43) == "0.4");
  CHECK(rate_text(0.034) == "0.034");
  CHECK(rate_text(0) == "0");
}

TEST_CASE("text is wrapped between words, and no word is lost or split") {
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("a incomprehensible b", 5) ==
        std::vector<std::string>{"a", "incomprehensible", "b"});
  CHECK(wrapped("  spaced   out ", 80) == std::vector<std::string>{"spaced out"});
  // Columns, not bytes.
  CHECK(wrapped("●●● ●●●", 7) == std::vector<std::string>{"●●● ●●●"});
}

TEST_CASE("paint that is off leaves text alone") {
  CHECK(Paint(false).red("x") == "x");
  CHECK(Paint(true).red("") == "");
}

TEST_CASE("a log gets a line after ten seconds and then every thirty") {
  const LogPace::Time start;
  const auto at = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  LogPace pace(start);
  CHECK(!pace.due(at(9)));
  CHECK(pace.due(at(10)));
  CHECK(!pace.due(at(39)));
  CHECK(pace.due(at(45)));
  CHECK(!pace.due(at(74)));
  CHECK(pace.due(at(75)));
}

TEST_CASE("a table aligns its columns") {
  Table table({false, true});
  table.add({"name", "bytes"});
  table.add({"a", "1"});
  CHECK(table.text() == "  name  bytes\n  a         1\n");
}

TEST_CASE("a table that no terminal shows is not cut") {
  Table table({false, false}, {0, 1});
  table.add({std::string(300, 'x'), std::string(300, 'y')});
  CHECK(table.text(std::nullopt) ==
        "  " + std::string(300, 'x') + "  " + std::string(300, 'y') + "\n");
}

TEST_CASE("a table that is too wide cuts the columns that may be cut, one after the other") {
  const auto table_with = [](const std::string& bytes) {
    Table table({false, false, true, false}, {1, 3});
    table.add({"name", "what it says", "bytes", "why"});
    table.add({"a", std::string(50, 'x'), bytes, std::string(14, 'y')});
    return table.text(40);
  };
  CHECK(table_with("123,456") ==
        "  name  what it…    bytes  why\n"
        "  a     xxxxxxx…  123,456  yyyyyyyyyyyy…\n");
  CHECK(table_with("123,456,789,012,345") ==
        "  name  what it…                bytes  why\n"
        "  a     xxxxxxx…  123,456,789,012,345  yyyyyyy…\n");
}

}  // namespace rematch::cli
