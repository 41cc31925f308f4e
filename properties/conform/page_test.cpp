#include "properties/conform/causes.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "properties/case/json.h"
#include "properties/conform/page.h"
#include "properties/faults/fault.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"
#include "properties/testing/shell.h"

namespace rematch::conform {
namespace {

using rematch::testing::contains;

std::size_t law(std::string_view name) { return index_of(*find_law(name)); }

void set(Column& column, std::string_view name, Mark mark, std::uint64_t cases) {
  Cell& cell = column.cells[law(name)];
  cell.cases[static_cast<std::size_t>(mark)] = cases;
  cell.structures = cell.judged();
}

Divergence divergence(Mark mark, const std::string& id, std::uint64_t cases) {
  Divergence d;
  d.mark = mark;
  d.id = id;
  d.cases = cases;
  d.laws["outputs"] = cases;
  d.violation = {"outputs", "step 0, output 0", "1", "2"};
  d.smallest =
      case_from_json(R"({"format": 1, "seed": 5, "input": [2, 3], "layers": [{"kind": "relu"}]})");
  return d;
}

/// Two implementations: one with a mark of each kind, and one that is not there.
Page example_page() {
  Page page;
  page.seed = 7;
  page.mix = "wide";
  Column& one = page.columns.emplace_back();
  one.subject = "one";
  one.versions = {{"one", "1.0"}, {"python", "3.11"}};
  one.cases = 1000;
  one.structures = 900;
  one.seconds = 10;
  one.cells.resize(laws().size());
  set(one, "survives", Mark::kept, 1000);
  set(one, "outputs", Mark::kept, 900);
  set(one, "outputs", Mark::known, 60);
  set(one, "outputs", Mark::fresh, 40);
  set(one, "losses", Mark::kept, 990);
  set(one, "losses", Mark::not_promised, 10);
  set(one, "input-gradients", Mark::not_observed, 1000);
  one.divergences = {divergence(Mark::fresh, "new-1", 40), divergence(Mark::known, "slow", 60),
                     divergence(Mark::not_promised, "limit", 10)};
  one.divergences[1].why = "It is slow.";
  one.divergences[1].reported = "https://example.org/1";
  one.divergences[1].since = "2.9";
  one.divergences[1].script = "scripts/one-slow.py";
  one.divergences[2].laws = {{"losses", 10}};
  Column& missing = page.columns.emplace_back();
  missing.subject = "missing";
  missing.problem = "no Python with it was found; make one with `ci/setup --frameworks missing`";
  return page;
}

/// A hunt of the engine with fault S1, which updates running statistics twice. Where the profile
/// has an entry for it, that is said not to be promised.
HuntOptions hunt_of_updates(bool known) {
  HuntOptions o;
  o.seed = 11;
  o.cases = 400;
  o.keep_going = true;
  o.shrunk_per_law = 3;
  o.make_subject = [] { return std::make_unique<EngineSubject>(find_fault("S1")->make); };
  if (!known) return o;
  KnownDivergence entry;
  entry.id = "twice";
  entry.laws = {"buffers-after-step"};
  entry.why = "It is so.";
  entry.promised = false;
  KnownDivergence other = entry;
  other.id = "never";
  other.laws = {"survives"};
  o.profile = Profile({entry, other});
  return o;
}

}  // namespace

TEST_CASE("a mark is the worst of what the cases show") {
  Cell cell;
  cell.structures = kFewStructures;
  CHECK(cell.mark() == Mark::not_applicable);
  for (std::size_t i = 1; i < kMarks; ++i) {
    // That is no verdict on a case.
    if (static_cast<Mark>(i) == Mark::too_few) continue;
    cell.cases[i] = 1;
    CHECK(cell.mark() == static_cast<Mark>(i));
    CHECK(mark_named(to_string(cell.mark())) == cell.mark());
  }
  CHECK(cell.judged() == 4);
}

TEST_CASE("the cells of a law add up to the cases, and a violation counts for its entry") {
  const HuntOptions o = hunt_of_updates(true);
  const HuntResult result = hunt(o);
  const Column column = column_of("mine", o, result);
  for (const Cell& cell : column.cells) {
    CHECK(std::accumulate(cell.cases.begin(), cell.cases.end(), std::uint64_t{0}) == 400);
  }
  const Cell& buffers = column.cells[law("buffers-after-step")];
  CHECK(buffers.mark() == Mark::not_promised);
  CHECK(buffers.of(Mark::not_promised) >= result.known_of(0));
  // The evaluation afterwards shows the same fault, which the profile does not say.
  CHECK(column.cells[law("reevaluation")].mark() == Mark::fresh);
  REQUIRE(column.divergences.size() >= 2);
  CHECK(column.divergences.front().mark == Mark::fresh);
  const Divergence& limit = column.divergences.back();
  CHECK(limit.id == "twice");
  CHECK(limit.why == "It is so.");
  CHECK(limit.laws.at("buffers-after-step") == buffers.of(Mark::not_promised));
  CHECK(column.unseen == std::vector<std::string>{"never"});
}

TEST_CASE("what no profile explains is new") {
  const HuntOptions o = hunt_of_updates(false);
  const Column column = column_of("mine", o, hunt(o));
  CHECK(column.divergences.front().mark == Mark::fresh);
  CHECK(column.divergences.front().id == "outputs-1");
  CHECK(column.cells[law("buffers-after-step")].mark() == Mark::fresh);
}

TEST_CASE("equal hunts give equal pages, but for times") {
  const auto page = [](int jobs) {
    HuntOptions o = hunt_of_updates(true);
    o.jobs = jobs;
    Page p;
    p.columns = {column_of("mine", o, hunt(o))};
    p.columns[0].seconds = 1;
    return page_json(p) + page_markdown(p);
  };
  CHECK(page(1) == page(2));
}

TEST_CASE("both forms of a page say what each implementation does with each law") {
  const Page page = example_page();
  const std::string markdown = page_markdown(page);
  CHECK(contains(markdown, "| one | 900 | **new 40 of 1,000** | n/a |"));
  CHECK(contains(markdown, "- kept: no difference in any case"));
  CHECK(contains(markdown, "| kept 1,000 |"));
  CHECK(contains(markdown, "- missing: no Python with it was found"));
  CHECK(contains(markdown,
                 "| one | <a id=\"one-slow\"></a>**slow**: It is slow. "
                 "([reported](https://example.org/1), since 2.9) ([script]("));
  const auto json = nlohmann::json::parse(page_json(page));
  const auto& laws = json["subjects"][0]["laws"];
  CHECK(laws["outputs"]["mark"] == "new");
  CHECK(laws["outputs"]["known"] == 60);
  CHECK(laws["input-gradients"]["mark"] == "not observed");
  CHECK(json["subjects"][1]["problem"] == page.columns[1].problem);
}

TEST_CASE("a page says what trackers know of a bug, and names the script that shows it") {
  Page page = example_page();
  const auto told = [&](const char* reported) {
    page.columns[0].divergences[1].reported = reported;
    page.columns[0].divergences[1].shown_by = "pytorch/slow";
    return page_markdown(page);
  };
  CHECK(contains(told("near https://example.org/1"),
                 "([near](https://example.org/1), since 2.9, script `bugs/pytorch/slow.py`)"));
  CHECK(contains(told("by design"), "(by design, since 2.9, script `"));
  CHECK(contains(told(""), "(not reported, since 2.9, script `"));
}

TEST_CASE("the JSON has one law or divergence a line, and a line for each implementation") {
  const Page page = example_page();
  const std::string json = page_json(page);
  // The line of the page, and the names of its two lists.
  CHECK(static_cast<std::size_t>(std::count(json.begin(), json.end(), '\n')) ==
        3 + laws().size() + 2 * page.columns.size() + page.columns[0].divergences.size());
  CHECK(contains(json, "\n{\"id\":\"slow\",\"mark\":\"known\",\"cases\":60,"));
}

TEST_CASE("no text of a subject or a profile becomes markup") {
  Page page = example_page();
  const std::string hostile = "<script>alert(1)</script>\"'&|`*_[x](y)\n# no";
  for (Column& c : page.columns) {
    c.subject = hostile;
    c.problem = hostile;
    c.versions = {{hostile, hostile}};
    c.why_not_judged = hostile;
    c.not_judged = 1;
    c.shortfalls = {hostile};
    c.unseen = {hostile};
    for (Divergence& d : c.divergences) {
      d.id = d.why = hostile;
      d.shown_by = hostile;
      d.reported = d.since = "javascript:alert(1)//" + hostile;
      d.violation.place = d.violation.expected = d.violation.got = hostile;
      d.replay = d.unshrunk = hostile;
    }
  }
  const std::string markdown = page_markdown(page);
  CHECK_FALSE(contains(markdown, "\n# no"));
  CHECK_FALSE(contains(markdown, "bugs/"));
  // In code and in the words of a case, markup is none.
  CHECK(contains(markdown, "\\<script\\>"));
  CHECK(contains(markdown, "\\|"));
  CHECK(nlohmann::json::parse(page_json(page))["subjects"][0]["name"] == hostile);
}

TEST_CASE("what is read from a page's JSON is that page") {
  const Page page = example_page();
  const std::string text = page_json(page);
  CHECK(page_json(page_from_json(text)) == text);
  CHECK(page_markdown(page_from_json(text)) == page_markdown(page));
}

TEST_CASE("a page says which state judged each implementation") {
  Page page = example_page();
  page.columns[1] = page.columns[0];
  page.columns[1].subject = "two";
  page.columns.push_back(page.columns[0]);
  CHECK_FALSE(contains(page_markdown(page), "## What judged"));
  for (Column& c : page.columns) c.state = "1a2b";
  CHECK(contains(page_markdown(page), "Judged by Rematch 1a2b."));
  page.columns[1].state = "3c4d";
  CHECK(contains(page_markdown(page), "Judged by Rematch 1a2b; those of two by Rematch 3c4d."));
}

TEST_CASE("a page that names a file elsewhere is refused") {
  for (const char* file : {"/etc/x.py", "scripts/../../x.py", "x.py"}) {
    INFO(file);
    Page page = example_page();
    page.columns[0].divergences[1].script = file;
    CHECK_THROWS_AS(page_from_json(page_json(page)), std::invalid_argument);
  }
}

TEST_CASE("a law that judged few structures is not called kept") {
  Page page = example_page();
  Cell& outputs = page.columns[0].cells[law("survives")];
  outputs.structures = kFewStructures - 1;
  CHECK(outputs.mark() == Mark::too_few);
  CHECK(page.columns[0].cell_of(Topic::survival).mark == Mark::too_few);
  CHECK(contains(page_markdown(page), "| too few 99 (survives) |"));
  outputs.structures = kFewStructures;
  CHECK(outputs.mark() == Mark::kept);
}

TEST_CASE("a topic is as strong as its weakest law") {
  Page page = example_page();
  Column& one = page.columns[0];
  one.cells = std::vector<Cell>(laws().size());
  set(one, "outputs", Mark::kept, 900);
  set(one, "parameter-gradients", Mark::kept, 300);
  CHECK(contains(page_markdown(page), "| one | 900 | kept 300 |"));
  CHECK(contains(page_markdown(page),
                 "| `one` | right; silently wrong, but not in a gradient here: "
                 "[new-1](#one-new-1), [slow](#one-slow) |"));
  set(one, "input-gradients", Mark::kept, 47);
  CHECK(contains(page_markdown(page), "| one | 900 | too few 47 (input-gradients) |"));
  CHECK(contains(page_markdown(page),
                 "| `one` | none wrong, but fewer than 100 structures; silently wrong, but"));
  set(one, "absent-gradients", Mark::known, 9);
  CHECK_FALSE(contains(page_markdown(page), "| `one` | right"));
  set(one, "repeatable", Mark::kept, 3);
  set(one, "survives", Mark::kept, 900);
  CHECK(contains(page_markdown(page), "kept 900 |"));
  set(one, "losses", Mark::not_promised, 2);
  CHECK(contains(page_markdown(page), "| one | 900 | not promised 2 of 2 |"));
}

TEST_CASE("what is silently wrong stands on the page, whether a case or a script shows it") {
  Page page = example_page();
  Divergence& slow = page.columns[0].divergences[1];
  const auto table_of = [&] {
    const std::string text =
        page_markdown(page).substr(0, page_markdown(page).find("## Which laws"));
    const std::string head = text.substr(0, text.find("**slow**"));
    return head.size() == text.size()
               ? ""
               : head.substr(head.rfind("## "),
                             head.find('\n', head.rfind("## ")) - head.rfind("## "));
  };
  slow.laws = {{"promises", 3}};
  CHECK(table_of().empty());
  slow.shown_by = "one/slow";
  CHECK(table_of() == "## Silently wrong otherwise");
  slow.moves_gradients = true;
  CHECK(table_of() == "## Silently wrong gradients");
  CHECK(contains(
      page_markdown(page),
      "| `one` | **silently wrong**: [slow](#one-slow) (60 of 1,000 cases); silently wrong, but"));
  slow.moves_gradients = false;
  slow.laws = {{"parameter-gradients", 3}};
  CHECK(table_of() == "## Silently wrong gradients");
  set(page.columns[0], "parameter-gradients", Mark::not_promised, 3);
  const auto answers = [&](const char* text) {
    return contains(page_markdown(page), std::string("| `one` | ") + text);
  };
  CHECK(answers("**silently wrong**: [slow](#one-slow) (3 of"));
  slow.plain_too = true;
  CHECK(answers("right, but for limits that are documented"));
  set(page.columns[0], "parameter-gradients", Mark::known, 3);
  CHECK(answers("[wrong without a checkpoint, too](#wrong-without-a-checkpoint-too)"));
  CHECK(table_of() == "## Wrong without a checkpoint, too");
}

TEST_CASE("each law that an implementation does not show has its reason") {
  Page page = example_page();
  Column other = page.columns[0];
  other.subject = "one:other";
  set(other, "input-gradients", Mark::kept, 5);
  page.columns.push_back(other);
  Frameworks known;
  CHECK(
      contains(page_markdown(page, known), "- one: no reason is given (`input-gradients` in one)"));
  known.unobserved = {{"one", {"one:other"}, {"input-gradients"}, "No."},
                      {"one", {}, {"input-gradients"}, "It has none."}};
  CHECK(contains(page_markdown(page, known), "- one: It has none. (`input-gradients` in one)"));
}

TEST_CASE("an entry that no implementation of a framework shows is stale once all judged enough") {
  const std::vector<std::string> every = {"one", "one:other"};
  Page page = example_page();
  page.columns[0].unseen = {"never", "slow", "elsewhere"};
  CHECK(unseen_in(page).front().ids == std::vector<std::string>{"elsewhere", "never"});
  CHECK_FALSE(unseen_in(page, every).front().stale);
  Column other = page.columns[0];
  other.subject = "one:other";
  other.unseen = {"never"};
  other.divergences = {divergence(Mark::known, "elsewhere", 1)};
  page.columns.push_back(other);
  const std::vector<Unseen> unseen = unseen_in(page, every);
  REQUIRE(unseen.size() == 1);
  CHECK(unseen[0].ids == std::vector<std::string>{"never"});
  CHECK(unseen[0].stale);
  CHECK(contains(page_markdown(page), "- one, in "));
  page.columns.back().structures = kStructuresToConfirm - 1;
  CHECK_FALSE(unseen_in(page, every)[0].stale);
  page.columns.back().shown = {"never"};
  CHECK(unseen_in(page_from_json(page_json(page)), every).empty());
}

TEST_CASE("text that is no page is refused with the place") {
  using Catch::Matchers::ContainsSubstring;
  using Catch::Matchers::MessageMatches;
  const auto refused = [](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK_THROWS_MATCHES(page_from_json(text), std::invalid_argument,
                         MessageMatches(ContainsSubstring(message)));
  };
  refused("", "expected JSON");
  refused(R"({"format": 1, "subjects": []})", "format");
  refused(R"({"format": 2, "subjects": [{"name": "x"}]})", "subjects[0].versions");
  refused(R"({"format": 2, "subjects": [{"name": "x", "versions": {}, "laws":
              {"outputs": {"mark": "fine"}}, "shortfalls": [], "divergences": []}]})",
          "subjects[0].laws.outputs.mark: expected a mark");
}

}  // namespace rematch::conform
