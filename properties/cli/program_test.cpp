// The program as its users meet it: arguments in, text and exit status out.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/cuda/runtime/device.h"
#include "properties/cli/testing/program.h"
#include "properties/laws/law.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using namespace testing;

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json check_json(const std::string& arguments) {
  const Outcome o = run("check --json " + arguments);
  check(o, 0);
  Json j = Json::parse(o.out);
  CHECK(j.erase("seconds") == 1);
  CHECK(j.erase("start_seconds") == 1);
  CHECK(j.erase("cases_per_second") == 1);
  return j;
}

}  // namespace

TEST_CASE("check prints the same JSON for one job and for two, apart from times") {
  const Json one = check_json("--cases 3000 --seed 9 --jobs 1");
  CHECK(one == check_json("--cases 3000 --seed 9 --jobs 2"));
  CHECK(one["cases"] == 3000);
  CHECK(one["findings"].empty());
  CHECK(one["saved_cases"] > 0);
  CHECK(one["laws"].size() == laws().size());
  CHECK(one["record_hash"] != check_json("--cases 3000 --seed 10")["record_hash"]);
}

TEST_CASE("check ends with a summary that says how much was looked at") {
  const Outcome o = run("check --mix standard --cases 2500 --jobs 2");
  check(o, 0,
        {"2,500 cases of the standard mix, seed 1",
         " structures (distinct models, plans and modes)\n", "all laws kept"});
  CHECK(contains(
      o.out,
      "judged no case (not observed): collectives, saved-at-most, held-at-most, held-in-backward, "
      "cross-device"));
  CHECK(contains(o.out, " features occurred in these cases (--verbose lists how often)"));
  CHECK(contains(o.out, "\nall laws kept\n"));
  // No colour and no progress bar outside of a terminal.
  CHECK_FALSE(contains(o.out, "\033"));
}

TEST_CASE("an interrupted check keeps what it found and exits with 130") {
  const Outcome o = run_interrupted({REMATCH_PROGRAM, "check", "--seed", "random", "--for", "1h"});
  check(o, 130);
  CHECK_FALSE(contains(o.out, ", 0 cases"));
  CHECK(contains(o.out, "interrupted"));
  CHECK(contains(o.out, "record hash"));
}

TEST_CASE("replay judges a case law by law and shows both runs") {
  const Outcome o = run("replay " + regression("replay_draws_anew"));
  check(o, 0, {"all laws kept; ", "again: "});
  for (const Law& law : laws()) CHECK(contains(o.out, law.name));
  CHECK(contains(o.out, "checkpointed"));
  CHECK(contains(o.out, "backward: 0'"));

  const Outcome j = run("replay --json --seed 1 --case 5");
  check(j, 0);
  CHECK(Json::parse(j.out)["verdicts"].size() == laws().size());
}

TEST_CASE("the same case comes from a seed and from the file that show prints") {
  const ScratchFolder folder;
  const Json shown = Json::parse(run("show --json --seed 4 --case 11").out);
  const std::string file = folder.write("case.json", shown["case"].dump());
  CHECK(Json::parse(run("replay --json '" + file + "'").out) ==
        Json::parse(run("replay --json --seed 4 --case 11").out));
}

TEST_CASE("show draws the bytes over time") { check(run("show --seed 1 --case 8"), 0, {"█"}); }

TEST_CASE("a check of a wrong engine exits with 1, and each line it prints violates the same law") {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "a check";
  fs::create_directory(folder);
  const Outcome found = run("check --subject engine:R1 --no-regressions --json", folder);
  check(found, 1);
  const Json finding = json_in(found.out)["findings"].at(0);
  CHECK(finding["law"] == "dropout-masks");
  CHECK(finding["case"]["layers"].size() <= 4);
  for (const char* line : {"again", "unshrunk"}) {
    check(run_line(finding[line], folder), 1, {"VIOLATED      dropout-masks"});
  }

  const Outcome text = run("check --subject engine:R1 --no-regressions", folder);
  check(text, 1, {"VIOLATED dropout-masks", finding["again"].get<std::string>()});
  CHECK_FALSE(contains(text.out, "all laws kept"));
}

TEST_CASE("two hunts in one folder, even at once, keep each their finding") {
  const ScratchFolder folder;
  const std::string line = "'" REMATCH_PROGRAM "' check --no-regressions --json --subject ";
  run_line(line + "engine:R1 > r1.out & " + line + "engine:G3 > g3.out & " + line +
               "engine:G3 --seed 2 > g3b.out & " + line + "engine:R1 > r1b.out & wait",
           folder.path());
  std::set<std::string> files;
  for (const char* name : {"r1.out", "g3.out", "g3b.out", "r1b.out"}) {
    const Json finding = Json::parse(text_of(folder.path() / name))["findings"].at(0);
    INFO(name << ": " << finding["law"]);
    CHECK((finding["law"] == "dropout-masks") == (name[0] == 'r'));
    files.insert(finding["file"].get<std::string>());
    check(run_line(finding["again"], folder.path()), 1,
          {"VIOLATED      " + finding["law"].get<std::string>()});
  }
  // The same hunt twice has the same file, with the same content.
  CHECK(files.size() == 3);
}

TEST_CASE("the faults that hunts and profiles find are there as JSON, too") {
  const Json found = Json::parse(run("faults --fault R1 --seeds 2 --json").out);
  CHECK(found["survived"] == 0);
  CHECK(found["faults"].at(0)["id"] == "R1");
  CHECK(found["faults"].at(0)["cases"].size() == 2);
  CHECK(found["faults"].at(0)["threads"].at(0) == "pytorch/pytorch#14253");
  const Json judged = Json::parse(run("faults --fault R1 --profile none --json").out);
  CHECK(judged.at(0)["hidden"] == 0);
  CHECK(judged.at(0)["faults"].at(0)["status"] == "new");
}

TEST_CASE("a finding that cannot be saved is reported all the same") {
  for (const char* format : {"", "--json"}) {
    const Outcome o =
        run("check --subject engine:R1 --no-regressions --save /proc " + std::string(format));
    INFO(o.out);
    CHECK(o.status == 1);
    CHECK(contains(o.out, "dropout-masks"));
    CHECK(contains(o.out, "cannot write"));
    CHECK(contains(o.out, "the finding stands"));
    CHECK(contains(o.out, R"("kind": "dropout")"));
  }
}

TEST_CASE("a check that keeps going reports each distinct finding once, with its count") {
  const ScratchFolder folder;
  const Outcome o = run(
      "check --subject engine:R1 --no-regressions --keep-going --cases 200 --json", folder.path());
  check(o, 1);
  const Json j = json_in(o.out);
  CHECK(j["cases"] == 200);
  CHECK(j["violating_cases"] > 20);
  CHECK(j["findings"].size() > 1);
  std::set<std::string> models;
  for (const Json& finding : j["findings"]) {
    Json model = finding["case"];
    model.erase("seed");
    CHECK(models.insert(finding["law"].get<std::string>() + model.dump()).second);
    CHECK(finding["cases"] >= 1);
    CHECK(std::filesystem::exists(folder.path() / finding["file"].get<std::string>()));
  }
}

TEST_CASE("laws are listed with their sentences, all of them or those that are named") {
  const Outcome o = run("laws");
  check(o, 0);
  for (const Law& law : laws()) {
    CHECK(contains(o.out, law.statement));
    CHECK(contains(o.out, "If violated: " + std::string(law.harm)));
  }
  CHECK(Json::parse(run("laws --json").out).size() == laws().size());
  const Outcome one = run("laws dropout-masks");
  check(one, 0, {"dropout-masks"});
  CHECK_FALSE(contains(one.out, "requires-grad-map"));
  CHECK(Json::parse(run("laws --json dropout-masks losses").out).size() == 2);
}

TEST_CASE("laws can be chosen and left out by name") {
  const Json one = check_json("--cases 100 --law outputs --law losses");
  CHECK(one["laws"].size() == 5);
  const Json most = check_json("--cases 100 --without live-bytes --without peak-bytes");
  CHECK(most["laws"].size() == laws().size() - 2);
  CHECK_FALSE(most["laws"].contains("live-bytes"));
}

TEST_CASE("a check in which nothing was judged is not green, and says why") {
  const Outcome o = run("check --law repeatable --cases 100");
  check(o, 1, {"judged no case (n/a): repeatable", "nothing was checked"});
  CHECK_FALSE(contains(o.out, "all laws kept"));
  CHECK(run("replay --law repeatable --seed 1 --case 1").status == 1);
}

TEST_CASE("a case that asks for more memory than a run may use is refused, not called broken") {
  const ScratchFolder folder;
  const std::string file =
      folder.write("huge.json", R"({"format": 1, "seed": 1, "dtype": "float64",)"
                                R"( "input": [1000000, 1000], "layers": [{"kind": "relu"}]})");
  for (const char* command : {"replay ", "show "})
    check(run(command + ("'" + file + "'")), 2, {"too large"});
}

TEST_CASE("output that cannot be written is an error") {
  CHECK(run_line("'" REMATCH_PROGRAM "' laws > /dev/full", "/tmp").status == 2);
  CHECK(run_line("'" REMATCH_PROGRAM "' laws | head -1", "/tmp").status == 0);
}

TEST_CASE("a usage error exits with 2 and names what was expected") {
  const std::pair<const char*, const char*> kErrors[] = {
      {"", "Look for bugs: run random cases"},
      {"--frobnicate", "expected a command before --frobnicate; commands: check, replay"},
      {"frobnicate", "commands: check, replay, show, laws, subjects, conform, faults"},
      {"frobnicate", "scenario"},
      {"check --law outputs --without outputs", "both name outputs"},
      {"check --without no-such-law", "laws` lists them"},
      {"check --seed -1", "--seed"},
      {"check --for tomorrow", "--for: expected a duration with its unit"},
      {"check --for 90", "60s"},
      {"check --for 721h", "at most 720h"},
      {"check --cases 0", "from 1"},
      {"check --jobs 0", "from 1"},
      {"check --jobs 100000", "at most 1024"},
      {"check --seed 18446744073709551616", "--seed"},
      {"replay --seed 1 --case -1", "--case"},
      {"check --device tpu", "cpu or cuda"},
      {"check --regressions /nowhere", "/nowhere"},
      {"replay", "--seed S"},
      {"replay --seed 1", "--case K"},
      {"replay --subject 'sh /nowhere.sh'", "expected a case file"},
      {"replay /nowhere.json", "No such file or directory"},
      {"scenario one_segment --all", "got several of them"},
      {"replay a.json --seed 1 --case 2", "got both"},
      {"show a.json --mix standard", "--mix has no effect on a case file"},
      {"check --limit 5s", "--limit has no effect on engine"},
      {"check --subject 'sh mine.sh' --device cuda", "chooses its own"},
  };
  for (const auto& [arguments, expected] : kErrors) {
    INFO("rematch " << arguments);
    check(run(arguments), 2, {expected});
  }
}

TEST_CASE("without a device --device cuda says so and what to do") {
  if (cuda::device_count() > 0) SKIP("a CUDA device was found");
  for (const char* arguments : {"check --device cuda", "replay --device cuda --seed 1 --case 1"}) {
    check(run(arguments), 2, {"CUDA", "use the CPU"});
  }
}

}  // namespace rematch
