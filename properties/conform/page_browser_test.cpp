// The page as a browser lays it out. Skipped, visibly, where there is no chromium.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "properties/conform/testing/example_page.h"
#include "properties/testing/browser.h"

namespace rematch::conform {
namespace {

using namespace testing;
using rematch::testing::browser;
using rematch::testing::looked_at;

/// Sizes that are measured with every fold open. The table is scrolled to its end.
constexpr std::string_view kScript = R"js(
(frame) => {
  const page = frame.document, root = page.documentElement;
  page.querySelectorAll('details').forEach(e => { e.open = true; });
  const box = page.querySelector('.laws').closest('.scroll');
  box.scrollLeft = 100000;
  const inside = e => e.closest('.scroll') || e.closest('pre');
  return {
    overflow: root.scrollWidth - root.clientWidth,
    outside: [...page.body.querySelectorAll('*')]
      .filter(e => { const r = e.getBoundingClientRect();
                     return r.width > 0 && r.right > root.clientWidth + 1 && !inside(e); })
      .map(e => e.tagName + ' ' + e.className).slice(0, 5),
    scrolled: box.scrollLeft,
    law: page.querySelector('.laws tbody th').getBoundingClientRect().left,
    box: box.getBoundingClientRect().left,
    smallest_text: Math.min(...[...page.querySelectorAll('span, li, td, p, pre')]
      .map(e => parseFloat(frame.getComputedStyle(e).fontSize))),
    colours: [frame.getComputedStyle(page.body).backgroundColor,
              frame.getComputedStyle(page.body).color],
  };
}
)js";

/// As many implementations as a real page has.
Page wide_page() {
  Page page = example_page();
  for (int i = 0; i < 12; ++i) {
    page.columns.push_back(page.columns[0]);
    page.columns.back().subject = "implementation:" + std::to_string(i);
  }
  return page;
}

}  // namespace

TEST_CASE("on a phone the table scrolls in its box, where the implementations stay") {
  if (browser().empty()) SKIP("no chromium was found");
  const auto widths =
      nlohmann::json::parse(looked_at(page_html(wide_page()), kScript, {390, 1280}));
  CHECK(widths[0]["scrolled"] > 0);
  for (const auto& seen : widths) {
    INFO(seen);
    CHECK(seen["overflow"] == 0);
    CHECK(seen["outside"].empty());
    CHECK(seen["law"].get<double>() <= seen["box"].get<double>() + 2);
    CHECK(seen["smallest_text"] >= 12);
  }
}

TEST_CASE("texts without a place to break them do not widen the page") {
  if (browser().empty()) SKIP("no chromium was found");
  Page page = example_page();
  for (Column& c : page.columns) {
    c.problem = std::string(300, 'x');
    c.subject = std::string(60, 's');
    for (Divergence& d : c.divergences) {
      d.id = d.why = d.reported = d.violation.got = d.replay = std::string(300, 'y');
    }
  }
  for (const auto& seen : nlohmann::json::parse(looked_at(page_html(page), kScript, {390, 1280}))) {
    INFO(seen);
    CHECK(seen["overflow"] == 0);
    CHECK(seen["outside"].empty());
  }
}

TEST_CASE("a page of laws is dark where the reader's system is") {
  if (browser().empty()) SKIP("no chromium was found");
  const std::string page = page_html(example_page());
  const auto colours = [&](const char* scheme) {
    const std::string option = std::string("--blink-settings=preferredColorScheme=") + scheme;
    return nlohmann::json::parse(looked_at(page, kScript, {390}, option))[0]["colours"];
  };
  CHECK(colours("1") == nlohmann::json({"rgb(255, 255, 255)", "rgb(27, 31, 39)"}));
  CHECK(colours("0") == nlohmann::json({"rgb(20, 23, 28)", "rgb(231, 234, 240)"}));
}

}  // namespace rematch::conform
