// Corpora as users of the program meet them.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <string>

#include "properties/cli/testing/program.h"
#include "properties/testing/shell.h"

namespace rematch {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run;

}  // namespace

TEST_CASE("a hunt adds to its corpus what it reached and found, and the next one runs that first") {
  const testing::ScratchFolder folder;
  const std::string hunt = "check --cases 300 --seed 3 --no-regressions --corpus corpus ";
  const Outcome first = run(hunt, folder.path());
  INFO(first.out);
  CHECK(first.status == 0);
  CHECK(contains(first.out, "corpus corpus: 0 cases; 0 run, which reach 0 pairs of features; "));
  CHECK_FALSE(contains(first.out, " 0 added"));
  const Outcome json =
      run("check --cases 300 --seed 3 --no-regressions --corpus of_json --json", folder.path());
  const std::size_t count = json.out.find("\"added\": ");
  REQUIRE(count != std::string::npos);
  const int added = std::stoi(json.out.substr(count + std::strlen("\"added\": ")));
  CHECK(contains(first.out, "; " + std::to_string(added) + " added\n"));
  // The same cases reach nothing new, in one process or in parts.
  CHECK(contains(run(hunt + "--jobs 1", folder.path()).out, " 0 added"));
  const Outcome part = run(hunt + "--shard 1/2 --results r", folder.path());
  CHECK(part.status == 2);
  CHECK(contains(part.out, "--corpus is for `rematch merge`"));
  const std::string parts = "check --cases 300 --seed 3 --results r";
  for (const char* number : {"1", "2"}) {
    CHECK(run(parts + number + " --shard " + number + "/2", folder.path()).status == 0);
  }
  const Outcome merged = run(
      "merge r1 r2 --no-regressions --corpus of_parts && diff -r corpus of_parts", folder.path());
  INFO(merged.out);
  CHECK(merged.status == 0);

  // A fault is shown by a case of the corpus, and first by one that an earlier hunt found.
  const Outcome again =
      run("check --subject engine:R1 --no-regressions --corpus corpus --cases 1", folder.path());
  INFO(again.out);
  CHECK(again.status == 1);
  CHECK(contains(again.out, "replay --subject engine:R1 corpus/reach-"));
  CHECK(run("check --subject engine:R1 --no-regressions --corpus found --cases 300", folder.path())
            .status == 1);
  const Outcome found =
      run("check --subject engine:R1 --no-regressions --corpus found --cases 1", folder.path());
  CHECK(contains(found.out, "replay --subject engine:R1 found/broke-"));
}

TEST_CASE("corpus merges folders into the first, and names what it cannot read") {
  const testing::ScratchFolder folder;
  CHECK(run("corpus a --cases 200 --seed 1", folder.path()).status == 0);
  CHECK(run("corpus b --cases 200 --seed 2", folder.path()).status == 0);
  CHECK(run("corpus ab a b && '" REMATCH_PROGRAM "' corpus ba b a && diff -r ab ba", folder.path())
            .status == 0);
  folder.write("b/mine.json", "{\"format\": 99}");
  const Outcome o = run("corpus ab b", folder.path());
  INFO(o.out);
  CHECK(o.status == 0);
  CHECK(contains(o.out, "0 added, 0 removed"));
  CHECK(contains(o.out, "b/mine.json"));
  CHECK(run("corpus ab none", folder.path()).status == 2);
}

}  // namespace rematch
