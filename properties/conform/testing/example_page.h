#pragma once

#include "properties/case/json.h"
#include "properties/conform/page.h"

namespace rematch::conform::testing {

inline std::size_t law(std::string_view name) { return index_of(*find_law(name)); }

inline void set(Column& column, std::string_view name, Mark mark, std::uint64_t cases) {
  Cell& cell = column.cells[law(name)];
  cell.cases[static_cast<std::size_t>(mark)] = cases;
  cell.structures = cell.judged();
}

inline Divergence divergence(Mark mark, const std::string& id, std::uint64_t cases) {
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
inline Page example_page() {
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

}  // namespace rematch::conform::testing
