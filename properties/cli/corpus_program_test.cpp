// The corpus of a hunt as users of the program meet it.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/testing/program.h"
#include "properties/testing/shell.h"

namespace rematch {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run;
using testing::run_line;

nlohmann::json report_of(const std::string& arguments, const testing::ScratchFolder& folder) {
  return testing::json_in(
      run("check --no-regressions --corpus --json " + arguments, folder.path()).out);
}

}  // namespace

TEST_CASE("a corpus is judged before the hunt, whose verdicts and hash stay as they are") {
  const testing::ScratchFolder folder;
  const std::string hunt = "check --cases 300 --seed 3 --no-regressions ";
  const auto with = report_of("--cases 300 --seed 3", folder);
  CHECK(with["corpus"]["judged"] == with["corpus"]["cases"]);
  CHECK(with["corpus"]["pairs"] > 5000);
  CHECK(with["saved_cases"] == 0);
  const auto without = nlohmann::json::parse(run(hunt + "--json", folder.path()).out);
  CHECK(with["record_hash"] == without["record_hash"]);
  CHECK(with["laws"] == without["laws"]);
  const Outcome text = run(hunt + "--corpus", folder.path());
  INFO(text.out);
  CHECK(text.status == 0);
  CHECK(contains(text.out, "corpus: " + with["corpus"]["cases"].dump() + " cases with "));

  // All parts have one corpus.
  CHECK(contains(run(hunt + "--corpus --shard 1/2 --results r", folder.path()).out,
                 "--corpus is for `rematch merge`"));
  for (const char* number : {"1", "2"}) {
    CHECK(run(hunt + "--results r" + number + " --shard " + number + "/2", folder.path()).status ==
          0);
  }
  const auto merged =
      nlohmann::json::parse(run("merge r1 r2 --no-regressions --corpus --json", folder.path()).out);
  CHECK(merged["corpus"] == with["corpus"]);
}

TEST_CASE("a fault that a corpus shows is shrunk, and the lines of its report show it again") {
  const testing::ScratchFolder folder;
  const auto report = report_of("--subject engine:R1 --cases 1 --seed 5", folder);
  CHECK(report["cases"] == 0);
  REQUIRE(report["findings"].size() == 1);
  const auto& finding = report["findings"][0];
  CHECK(finding["saved_case"] == false);
  CHECK(run_line(finding["again"].get<std::string>(), folder.path()).status == 1);
  CHECK(run_line(finding["unshrunk"].get<std::string>(), folder.path()).status == 1);
}

}  // namespace rematch
