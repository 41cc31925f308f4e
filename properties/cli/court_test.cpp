#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/testing/program.h"
#include "properties/testing/shell.h"

namespace rematch {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run;
using testing::ScratchFolder;
using Json = nlohmann::json;

}  // namespace

TEST_CASE("court reports promises and regret, saves the worst case, and that case replays",
          "[plans]") {
  const ScratchFolder folder;
  const std::string lies =
      R"('while read -r x; do echo "{\"segments\":[[0,1]],\"promise\":{\"peak_bytes\":9}}"; done')";
  const Outcome text =
      run("court --chains 40 --seed 3 --save worst --planner optimum --planner "
          "sequential --planner " +
              lies,
          folder.path());
  CHECK(text.status == 1);
  CHECK(contains(text.out, "40 chains, 1 to 12 layers, seed 3"));
  CHECK(contains(text.out, "40 kept, 0 broken"));
  CHECK(contains(text.out, "replay worst/sequential-regret.json"));
  std::string broken;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "worst")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with("-bytes.json")) broken = name;
  }
  const Outcome again = run("replay worst/" + broken, folder.path());
  CHECK(again.status == 1);
  CHECK(contains(again.out, "1 law violated: plan-promise"));
  const Outcome kept = run("court --chains 40 --seed 3 --json", folder.path());
  CHECK(kept.status == 0);
  const Json j = Json::parse(kept.out);
  CHECK(j["seed"] == 3);
  CHECK(j["planners"][0]["planned"] == 40);
  CHECK(j["planners"][0]["bytes_broken"]["plans"] == 40);
  CHECK(j["planners"][0]["bytes_broken"]["some"] == 0);
}

TEST_CASE("court takes a case, a file of intervals and a command, and says what is wrong",
          "[plans]") {
  const ScratchFolder folder;
  std::ofstream(folder.path() / "case.json")
      << R"({"format": 1, "input": [2, 3], "layers": [{"kind": "tanh"}, {"kind": "tanh"}],
             "protocol": {"input_requires_grad": true}})";
  std::ofstream(folder.path() / "one.json") << "[[0, 1]]";
  const std::string lies =
      R"('while read -r x; do echo "{\"segments\":[[0,1]],\"promise\":{\"peak_bytes\":9}}"; done')";
  const Outcome judged =
      run("court case.json --json --planner one.json --planner " + lies, folder.path());
  CHECK(judged.status == 1);
  const Json planners = Json::parse(judged.out)["planners"];
  CHECK(planners[0]["planned"] == 1);
  CHECK(planners[0]["bytes_broken"]["plans"] == 0);
  CHECK(planners[1]["bytes_broken"]["some"] == 1);
  const Outcome unknown = run("court --planner optimun", folder.path());
  CHECK(unknown.status == 2);
  CHECK(contains(unknown.out, "optimum"));
  const Outcome broken = run("court --chains 2 --planner 'exit 4'", folder.path());
  CHECK(broken.status == 2);
  CHECK(contains(broken.out, "exit 4 failed"));
  CHECK(contains(run("court --list", folder.path()).out, "checkpoint_sequential()"));
}

}  // namespace rematch
