#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/testing/program.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using testing::check;
using testing::contains;
using testing::Outcome;
using testing::run;
using testing::ScratchFolder;
using testing::text_of;
using Json = nlohmann::json;

void write_case(const ScratchFolder& folder, const std::string& layers) {
  std::ofstream(folder.path() / "case.json")
      << R"({"format": 1, "input": [2, 3], "layers": [)" << layers
      << R"(], "protocol": {"input_requires_grad": true}})";
}

constexpr const char* kFour =
    R"({"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"})";

}  // namespace

TEST_CASE("plan lists the best plans, runs the one for a budget, and saves it with its promise",
          "[plans]") {
  const ScratchFolder folder;
  write_case(folder, kFour);
  const Outcome all = run("plan case.json --json", folder.path());
  check(all, 0);
  const Json plans = Json::parse(all.out)["plans"];
  CHECK(plans.front()["plan"]["promise"]["recomputations"] == 0);
  const Json least = plans.back()["plan"]["promise"];
  CHECK(least["peak_bytes"] == 104);
  const Outcome one = run("plan case.json --json --budget 104 --save planned.json", folder.path());
  check(one, 0);
  const Json planned = Json::parse(one.out);
  CHECK(planned["exact"] == true);
  CHECK(planned["plan"]["measured"] == least);
  CHECK(Json::parse(text_of(folder.path() / "planned.json")) == planned["case"]);
  check(run("replay planned.json --law plan-promise", folder.path()), 0,
        {"kept          plan-promise"});
  CHECK(contains(run("plan case.json --budget 104", folder.path()).out, "this plan"));
  CHECK(contains(run("plan case.json", folder.path()).out, "recomputed layers"));
}

TEST_CASE("with --time, plan recomputes what takes little time, not few layers", "[plans]") {
  const ScratchFolder folder;
  write_case(folder, kFour);
  // A second layer that is dear is never run again while another cut gives the same bytes.
  const Json plans = Json::parse(run("plan case.json --time 1,9,1,1 --json", folder.path()).out);
  CHECK(plans["layer_times"] == Json{1, 9, 1, 1});
  const Json counted = Json::parse(run("plan case.json --time 1,1,1,1 --json", folder.path()).out);
  const Json layers = Json::parse(run("plan case.json --json", folder.path()).out);
  REQUIRE(counted["plans"].size() == layers["plans"].size());
  for (std::size_t i = 0; i < counted["plans"].size(); ++i) {
    CHECK(counted["plans"][i]["plan"] == layers["plans"][i]["plan"]);
    CHECK(counted["plans"][i]["recomputed_time"] ==
          layers["plans"][i]["plan"]["promise"]["recomputations"]);
  }
  const Outcome measured = run("plan case.json --time measured --json --budget 104", folder.path());
  check(measured, 0);
  const Json one = Json::parse(measured.out);
  CHECK(one["layer_times"].size() == 4);
  CHECK(one["recomputed_time"] > 0);
  CHECK(contains(run("plan case.json --time 1,9,1,1", folder.path()).out, "time again"));
  check(run("plan case.json --time 1,9", folder.path()), 2,
        {"expected 'measured', or a number for each of 4 layers, got 2"});
}

TEST_CASE("plan says what does not fit, and what is no chain", "[plans]") {
  const ScratchFolder folder;
  write_case(folder, kFour);
  check(run("plan case.json --budget 103", folder.path()), 2,
        {"expected a plan of at most 103 B, got 104 B as the least"});
  write_case(folder, R"({"kind": "tanh"}, {"kind": "tanh"}, {"kind": "add", "from": [0, 0]})");
  check(run("plan case.json", folder.path()), 2,
        {"expected a chain, in which each layer reads the one before"});
}

}  // namespace rematch
