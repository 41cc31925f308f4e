// One report as Markdown, and for a terminal.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "properties/testing/shell.h"
#include "scenarios/report/render.h"

namespace rematch::scenarios {
namespace {

using rematch::testing::contains;

const Scenario kStory{"a_story",    "Why?",
                      "a thread",   "Because.",
                      "Do `this`.", {{"A1.x", "y", "1"}, {"A1.x", "z", "2"}, {"B2.x", "y", "3"}}};

Report sample(bool holds = true, double peak = 5) {
  Report report;
  report.say("See [the thread](https://example.org/a) and **mind** `a[i]` of a | b.");
  Table& table = report.table("Bytes", {"run", "a | b"});
  table.row({"plain", "1,234"});
  table.row({"checkpointed", "56"});
  report.chart({.title = "Bytes < time & \"space\"",
                .x_label = "steps",
                .y_label = "KiB",
                .kind = Chart::Kind::steps,
                .series = {{"plain", {0, 1, 2}, {1, peak, 2}}, {"other", {0, 1, 2}, {1, 2, 2}}}});
  report.claim(holds, "first claim");
  report.claim(true, "second claim");
  report.measured("12 ms");
  return report;
}

}  // namespace

TEST_CASE("a page is Markdown, with charts in blocks and what was measured") {
  const std::string text = page(kStory, sample(), 80);
  CHECK(text.starts_with("# a_story\n\n> Why?\n\nSource: a thread\n\n**In short.** Because.\n"));
  CHECK(contains(text, "| run | a \\| b |\n| --- | ---: |\n| plain | 1,234 |\n"));
  CHECK(contains(text, "█"));
  CHECK(contains(text, "\n\n- [x] first claim\n- [x] second claim\n"));
  CHECK(contains(text, "Measured: 12 ms\n"));
  CHECK(text.ends_with("\n\n**In PyTorch.** Do `this`. (A1.x, B2.x.)\n"));
  CHECK(contains(page(kStory, sample(false), 80), "- [ ] first claim"));
}

TEST_CASE(
    "a digest changes with the text, with a chart and with a claim, not with what was measured") {
  const std::string approved = digest(kStory, sample());
  CHECK(approved.starts_with(R"("a_story": {"claims": 2, "charts": 1, "digest": ")"));
  CHECK(digest(kStory, sample(false)) != approved);
  for (const bool same : {true, false}) {
    Report report = sample();
    if (same) report.measured("13 ms");
    if (!same) report.say("More.");
    CHECK((digest(kStory, report) == approved) == same);
  }
  CHECK(digest(kStory, sample(true, 6)) != approved);
}

TEST_CASE("wrapping a paragraph makes no list, heading or quotation of it") {
  const std::string filler(113, 'x');
  for (const char* word : {"-", "+", "*", "#", "##", ">", "12.", "3)"}) {
    Report report;
    report.say(filler + " a b " + word + " c");
    CHECK(contains(page(kStory, report, 80), filler + " a b " + word + " c\n"));
  }
  Report report;
  report.say(filler + " a b -1 c");
  CHECK(contains(page(kStory, report, 80), filler + " a b\n-1 c\n"));
}

}  // namespace rematch::scenarios
