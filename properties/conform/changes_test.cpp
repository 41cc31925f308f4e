#include "properties/conform/changes.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "properties/conform/testing/example_page.h"

namespace rematch::conform {
namespace {

using namespace testing;

bool has(const std::vector<Change>& changes, Change::Kind kind, const std::string& text) {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& c) {
    return c.kind == kind && c.text.find(text) != std::string::npos;
  });
}

std::vector<Change> between(const Page& before, const Page& now) {
  return changes_since(before, now);
}

/// Without the new violation.
Page quiet_page() {
  Page page = example_page();
  Column& one = page.columns[0];
  set(one, "outputs", Mark::fresh, 0);
  one.divergences.erase(one.divergences.begin());
  return page;
}

}  // namespace

TEST_CASE("between equal pages nothing has changed") {
  CHECK(between(example_page(), example_page()).empty());
}

TEST_CASE("what violates a law in a new way broke, and what no longer does was mended") {
  CHECK(has(between(quiet_page(), example_page()), Change::Kind::broken,
            "outputs is violated in a new way, and was known"));
  Page kept = quiet_page();
  set(kept.columns[0], "outputs", Mark::known, 0);
  CHECK(has(between(example_page(), kept), Change::Kind::mended,
            "outputs was violated in a new way, and is kept"));
}

TEST_CASE("a known divergence that no case shows any more was mended, and one that came broke") {
  const Page before = quiet_page();
  Page now = before;
  now.columns[0].divergences.erase(now.columns[0].divergences.begin());
  CHECK(has(between(before, now), Change::Kind::mended,
            "slow was seen in 60 of 1000, and now in none of 1000"));
  CHECK(has(between(now, before), Change::Kind::broken, "slow is seen in 60 of 1000"));
}

TEST_CASE("what was seen too rarely to be missed is not called mended") {
  Page before = quiet_page();
  before.columns[0].divergences[0].cases = 4;
  Page now = before;
  now.columns[0].divergences.erase(now.columns[0].divergences.begin());
  CHECK(between(before, now).empty());
  // As rare, in a hunt that is so much shorter.
  before.columns[0].divergences[0].cases = 60;
  now.columns[0].cases = 50;
  CHECK(between(before, now).empty());
}

TEST_CASE("an entry with another name, or for what was new, did not break anything") {
  const Page before = quiet_page();
  Page now = before;
  now.columns[0].divergences[0].id = "sluggish";
  for (const Change& c : between(before, now)) CHECK(c.kind == Change::Kind::other);
  const Page fresh = example_page();
  now = quiet_page();
  now.columns[0].divergences.push_back(divergence(Mark::known, "explained", 40));
  for (const Change& c : between(fresh, now)) CHECK(c.kind == Change::Kind::other);
}

TEST_CASE("versions, and implementations that come and go, are said") {
  const Page before = example_page();
  Page now = before;
  now.columns[0].versions["one"] = "2.0";
  CHECK(has(between(before, now), Change::Kind::other, "one 2.0 was 1.0"));
  now.columns[0].cells.clear();
  CHECK(has(between(before, now), Change::Kind::broken, "is no longer judged"));
  CHECK(has(between(now, before), Change::Kind::other, "is judged now"));
  now = before;
  now.columns.pop_back();
  CHECK(has(between(before, now), Change::Kind::other, "was on the earlier page only"));
  CHECK(has(between(now, before), Change::Kind::other, "was not on the earlier page"));
}

TEST_CASE("a law that is judged no more is said, and what broke comes first") {
  const Page before = quiet_page();
  Page now = example_page();
  now.columns[0].cells[law("losses")] = {};
  const std::vector<Change> changes = between(before, now);
  CHECK(has(changes, Change::Kind::other, "losses is n/a, and was not promised"));
  CHECK(changes.front().kind == Change::Kind::broken);
}

}  // namespace rematch::conform
