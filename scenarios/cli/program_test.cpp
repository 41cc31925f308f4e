// The program as its users meet it: arguments in, text, files and exit status out.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/testing/outcome.h"
#include "scenarios/report/scenario.h"

namespace rematch::scenarios {
namespace {

using namespace testing;

Outcome run(const std::string& arguments) {
  return run_line("'" REMATCH_PROGRAM "' scenario " + arguments);
}

}  // namespace

TEST_CASE("without a name the program lists every story with its question") {
  const Outcome o = run("");
  check(o, 0);
  for (const Scenario& scenario : scenarios()) {
    CHECK(contains(o.out, scenario.name));
    CHECK(contains(o.out, scenario.question));
  }
}

TEST_CASE("the questions, and the claims of a story, are there as JSON") {
  const auto listed = nlohmann::json::parse(run("--json").out);
  CHECK(listed.size() == scenarios().size());
  const auto told = nlohmann::json::parse(run("preserve_rng --json").out);
  CHECK(told.at(0)["name"] == "preserve_rng");
  CHECK(told.at(0)["claims"].at(0)["holds"] == true);
}

TEST_CASE("a story is told as text") {
  const Outcome text = run("preserve_rng");
  check(text, 0, {"claims hold"});
  CHECK_FALSE(contains(text.out, "\033"));
}

TEST_CASE("an interrupted story keeps what it found and exits with 130") {
  const Outcome o = run_interrupted({REMATCH_PROGRAM, "scenario", "--all"});
  check(o, 130, {"interrupted"});
  // The story that was under way is told as far as it came.
  CHECK(contains(o.out, "last_segment"));
}

TEST_CASE("a usage error of the scenarios exits with 2 and names what was expected") {
  const std::pair<const char*, const char*> kErrors[] = {
      {"no_such_story", "(`rematch scenario` lists them)"},
      {"last_segmnet", "no scenario is named \"last_segmnet\"; did you mean last_segment?"},
      {"last_segment --jsn", "has no option --jsn; did you mean --json?"},
      {"last_segment --all", "got several of them"},
      {"last_segment --approve /tmp", "got several of them"},
      {"--approve /dev/null/folder", "/dev/null/folder"},
      {"last_segment --colour", "--colour"},
  };
  for (const auto& [arguments, expected] : kErrors) {
    INFO("rematch scenario " << arguments);
    const Outcome o = run(arguments);
    check(o, 2, {expected});
    CHECK(o.out.starts_with("rematch scenario: "));
    CHECK(std::count(o.out.begin(), o.out.end(), '\n') == 1);
  }
  CHECK(run("--help").status == 0);
}

}  // namespace rematch::scenarios
