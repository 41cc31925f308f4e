// The page as a browser lays it out. Skipped, visibly, where there is no chromium.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "bench/compare/report.h"
#include "bench/compare/testing/example.h"
#include "bench/compare/words.h"
#include "properties/testing/browser.h"

namespace rematch::compare {
namespace {

using testing::browser;

/// What is measured in the page, once folded and once with every fold open.
constexpr std::string_view kScript = R"js(
(frame) => {
  const page = frame.document, root = page.documentElement, width = root.clientWidth;
  const measure = () => ({
    width,
    overflow: root.scrollWidth - width,
    outside: [...page.body.querySelectorAll('*')]
      .filter(e => { const r = e.getBoundingClientRect();
                     return r.width > 0 && (r.right > width + 1 || r.left < -1); })
      .map(e => e.tagName + ' ' + e.className).slice(0, 5),
    verdict: page.querySelector('h1').checkVisibility() ? page.querySelector('h1').innerText : '',
    rows: page.querySelectorAll('.row').length,
    visible_rows: [...page.querySelectorAll('.row')].filter(e => e.checkVisibility()).length,
    figures: page.querySelectorAll('figure').length,
    smallest_text: Math.min(...[...page.querySelectorAll('span, li, td, p')]
      .map(e => parseFloat(frame.getComputedStyle(e).fontSize))),
    colours: [frame.getComputedStyle(page.body).backgroundColor,
              frame.getComputedStyle(page.body).color],
  });
  const folded = measure();
  page.querySelectorAll('details').forEach(e => { e.open = true; });
  return {folded, open: measure()};
}
)js";

nlohmann::json looked_at(const std::string& page, const std::string& options) {
  return nlohmann::json::parse(testing::looked_at(page, kScript, {360, 768, 1280}, options));
}

std::string whole_page(const Comparison& c) {
  const TimelinePairs timelines = example_timelines();
  const HistoryReport history = examine_history(example_history(), "", Options{});
  return html_report(c, {&timelines, &history});
}

}  // namespace

TEST_CASE("a browser shows the whole page at the width of a phone and of a desktop") {
  if (browser().empty()) SKIP("no chromium was found");
  const Comparison c = example_comparison();
  const nlohmann::json found = looked_at(whole_page(c), "");
  REQUIRE(found.size() == 3);
  for (const nlohmann::json& frame : found) {
    for (const char* state : {"folded", "open"}) {
      const nlohmann::json& page = frame[state];
      INFO(page);
      CHECK(page["overflow"] == 0);
      CHECK(page["outside"].empty());
      CHECK(page["verdict"] == headline(c));
      CHECK(page["rows"] == c.benchmarks.size());
      CHECK(page["figures"] == 5);
      CHECK(page["smallest_text"] >= 12);
    }
    CHECK(frame["folded"]["visible_rows"] < c.benchmarks.size());
    CHECK(frame["open"]["visible_rows"] == c.benchmarks.size());
  }
  CHECK(found[0]["folded"]["width"] == 360);
}

TEST_CASE("a name without a place to break it does not widen the page") {
  if (browser().empty()) SKIP("no chromium was found");
  Comparison c = example_comparison();
  c.benchmarks[0].name = std::string(200, 'x');
  c.findings[0].text = std::string(300, 'y');
  for (const nlohmann::json& frame : looked_at(whole_page(c), "")) {
    CHECK(frame["open"]["overflow"] == 0);
    CHECK(frame["open"]["outside"].empty());
  }
}

TEST_CASE("the page is dark where the reader's system is") {
  if (browser().empty()) SKIP("no chromium was found");
  const std::string page = whole_page(example_comparison());
  const nlohmann::json light = looked_at(page, "--blink-settings=preferredColorScheme=1");
  const nlohmann::json dark = looked_at(page, "--blink-settings=preferredColorScheme=0");
  CHECK(light[0]["folded"]["colours"] == nlohmann::json({"rgb(255, 255, 255)", "rgb(27, 31, 39)"}));
  CHECK(dark[0]["folded"]["colours"] == nlohmann::json({"rgb(20, 23, 28)", "rgb(231, 234, 240)"}));
}

}  // namespace rematch::compare
