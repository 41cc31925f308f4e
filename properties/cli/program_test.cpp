// The program as its users meet it: arguments in, text and exit status out.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/cuda/runtime/device.h"
#include "properties/cli/testing/program.h"
#include "properties/laws/law.h"
#include "properties/testing/shell.h"

namespace rematch {
namespace {

using testing::contains;
using testing::json_in;
using testing::Outcome;
using testing::regression;
using testing::run;
using testing::run_interrupted;
using testing::run_line;
using testing::ScratchFolder;
using testing::text_of;

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json check_json(const std::string& arguments) {
  const Outcome o = run("check --json " + arguments);
  INFO(o.out);
  CHECK(o.status == 0);
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

TEST_CASE("parts of a hunt, one of them killed, merge to the report of one hunt") {
  const testing::ScratchFolder folder;
  const std::string options =
      "--subject engine:R1 --keep-going --no-regressions --cases 1200 --seed 11 ";
  const auto part = [&](int number, const std::string& more = "") {
    return "check " + options + "--shard " + std::to_string(number) + "/3 --results r" +
           std::to_string(number) + " " + more;
  };
  const auto report = [](const Outcome& o) {
    INFO(o.out);
    CHECK(o.status == 1);
    Json j = json_in(o.out);
    for (const char* time : {"seconds", "start_seconds", "cases_per_second"}) j.erase(time);
    return j;
  };
  // Killed as soon as it has written something; were it over by then, it would be as well.
  run_line("('" REMATCH_PROGRAM "' " + part(2) +
               " >/dev/null 2>&1 & p=$!; until [ -s r2 ]; do :; done; kill -9 $p; wait $p)",
           folder.path());
  for (const int number : {3, 1, 2}) {
    const Outcome o = run(part(number, "--resume"), folder.path());
    INFO(o.out);
    CHECK(o.status == 1);
    CHECK(contains(o.out, "part " + std::to_string(number) + " of 3 of 1,200 cases"));
  }
  CHECK(report(run("merge --no-regressions --json r1 r2 r3", folder.path())) ==
        report(run("check --json " + options, folder.path())));
  const Outcome missing = run("merge r1 r3 r3", folder.path());
  CHECK(missing.status == 2);
  CHECK(contains(missing.out, "part 3 is there twice: r3 and r3"));
  CHECK(contains(missing.out, "of 3 parts these are missing: 2"));
  CHECK(run(part(1), folder.path()).status == 2);
}

TEST_CASE("a part that was interrupted says so, whatever it had seen") {
  const testing::ScratchFolder folder;
  const std::string part = "check --subject engine:R1 --keep-going --cases 1000000000 --shard 1/2 ";
  const Outcome o = run_line("('" REMATCH_PROGRAM "' " + part +
                                 "--results r1 & p=$!; until grep -qs index r1; do :; done; "
                                 "kill -TERM $p; wait $p) 2>&1",
                             folder.path());
  INFO(o.out);
  // 1 would be that of a part that is done.
  CHECK(o.status == 130);
  CHECK(contains(o.out, "not done; the same command with --resume goes on"));
  CHECK(contains(o.out, "violates dropout-masks. To replay it unshrunk"));
}

TEST_CASE("check ends with a summary that says how much was looked at") {
  const Outcome o = run("check --mix standard --cases 2500 --jobs 2");
  CHECK(o.status == 0);
  CHECK(contains(o.out, "2,500 cases of the standard mix, seed 1"));
  CHECK(contains(o.out, " structures (distinct models, plans and modes)\n"));
  CHECK(contains(o.out, "all laws kept"));
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
  INFO(o.out);
  CHECK(o.status == 130);
  CHECK_FALSE(contains(o.out, ", 0 cases"));
  CHECK(contains(o.out, "interrupted"));
  CHECK(contains(o.out, "record hash"));
}

TEST_CASE("replay judges a case law by law and shows both runs") {
  const Outcome o = run("replay " + regression("replay_draws_anew"));
  CHECK(o.status == 0);
  CHECK(contains(o.out, "all laws kept; "));
  CHECK(contains(o.out, "again: "));
  for (const Law& law : laws()) CHECK(contains(o.out, law.name));
  CHECK(contains(o.out, "checkpointed"));
  CHECK(contains(o.out, "backward: 0'"));

  const Outcome j = run("replay --json --seed 1 --case 5");
  CHECK(j.status == 0);
  CHECK(Json::parse(j.out)["verdicts"].size() == laws().size());
}

TEST_CASE("the same case comes from a seed and from the file that show prints") {
  const fs::path file =
      fs::temp_directory_path() / ("rematch-show-" + std::to_string(getpid()) + ".json");
  const Json shown = Json::parse(run("show --json --seed 4 --case 11").out);
  std::ofstream(file) << shown["case"];
  const Json again = Json::parse(run("replay --json " + file.string()).out);
  const Json seeded = Json::parse(run("replay --json --seed 4 --case 11").out);
  CHECK(again == seeded);
  fs::remove(file);
}

TEST_CASE("show draws the bytes over time in the terminal and as SVG") {
  const fs::path file =
      fs::temp_directory_path() / ("rematch-show-" + std::to_string(getpid()) + ".svg");
  const Outcome o = run("show --seed 1 --case 8 --svg " + file.string());
  CHECK(o.status == 0);
  CHECK(contains(o.out, "█"));
  std::ifstream in(file);
  const std::string svg((std::istreambuf_iterator<char>(in)), {});
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(contains(svg, "checkpointed"));
  fs::remove(file);
  CHECK(run("show --seed 1 --case 8 --svg /nowhere/a.svg").status == 2);
}

TEST_CASE("a check of a wrong engine exits with 1, and each line it prints violates the same law") {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "a check";
  fs::create_directory(folder);
  const Outcome found = run("check --subject engine:R1 --no-regressions --json", folder);
  CHECK(found.status == 1);
  const Json finding = json_in(found.out)["findings"].at(0);
  CHECK(finding["law"] == "dropout-masks");
  CHECK(finding["case"]["layers"].size() <= 4);
  for (const char* line : {"again", "unshrunk"}) {
    const Outcome again = run_line(finding[line], folder);
    INFO(line << ": " << again.out);
    CHECK(again.status == 1);
    CHECK(contains(again.out, "VIOLATED      dropout-masks"));
  }

  const Outcome text = run("check --subject engine:R1 --no-regressions", folder);
  CHECK(text.status == 1);
  CHECK(contains(text.out, "VIOLATED dropout-masks"));
  CHECK(contains(text.out, finding["again"].get<std::string>()));
  CHECK_FALSE(contains(text.out, "all laws kept"));
}

TEST_CASE("two hunts in one folder, even at once, keep each their finding") {
  const ScratchFolder folder;
  const std::string check = "'" REMATCH_PROGRAM "' check --no-regressions --json --subject ";
  run_line(check + "engine:R1 > r1.out & " + check + "engine:G3 > g3.out & " + check +
               "engine:G3 --seed 2 > g3b.out & " + check + "engine:R1 > r1b.out & wait",
           folder.path());
  std::set<std::string> files;
  for (const char* name : {"r1.out", "g3.out", "g3b.out", "r1b.out"}) {
    const Json finding = Json::parse(text_of(folder.path() / name))["findings"].at(0);
    INFO(name << ": " << finding["law"]);
    CHECK((finding["law"] == "dropout-masks") == (name[0] == 'r'));
    files.insert(finding["file"].get<std::string>());
    const Outcome again = run_line(finding["again"], folder.path());
    CHECK(again.status == 1);
    CHECK(contains(again.out, "VIOLATED      " + finding["law"].get<std::string>()));
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
  CHECK(o.status == 1);
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

TEST_CASE("laws are listed, all of them or those that are named") {
  CHECK(Json::parse(run("laws --json").out).size() == laws().size());
  const Outcome one = run("laws dropout-masks");
  CHECK(one.status == 0);
  CHECK(contains(one.out, "dropout-masks"));
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
  CHECK(o.status == 1);
  CHECK(contains(o.out, "judged no case (n/a): repeatable"));
  CHECK(contains(o.out, "nothing was checked"));
  CHECK_FALSE(contains(o.out, "all laws kept"));
  CHECK(run("replay --law repeatable --seed 1 --case 1").status == 1);
}

TEST_CASE("a case that asks for more memory than a run may use is refused, not called broken") {
  const fs::path file =
      fs::temp_directory_path() / ("rematch-huge-" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << R"({"format": 1, "seed": 1, "dtype": "float64",)"
                         R"( "input": [1000000, 1000], "layers": [{"kind": "relu"}]})";
  for (const char* command : {"replay ", "show "}) {
    const Outcome o = run(command + file.string());
    INFO(o.out);
    CHECK(o.status == 2);
    CHECK(contains(o.out, "too large"));
  }
  fs::remove(file);
}

TEST_CASE("output that cannot be written is an error") {
  CHECK(run_line("'" REMATCH_PROGRAM "' laws > /dev/full", "/tmp").status == 2);
  CHECK(run_line("'" REMATCH_PROGRAM "' laws | head -1", "/tmp").status == 0);
}

TEST_CASE("show does not overwrite its case with a picture") {
  const std::string file = regression("replay_draws_anew");
  const Outcome o = run("show " + file + " --svg " + file);
  CHECK(o.status == 2);
  CHECK(contains(o.out, "name another file"));
}

TEST_CASE("laws lists every law with its sentence") {
  const Outcome o = run("laws");
  CHECK(o.status == 0);
  for (const Law& law : laws()) {
    CHECK(contains(o.out, law.statement));
    CHECK(contains(o.out, "If violated: " + std::string(law.harm)));
  }
  CHECK(Json::parse(run("laws --json").out).size() == laws().size());
}

TEST_CASE("options of a part are refused where they cannot work, with what to give instead") {
  const auto refused = [](const std::string& arguments, const char* why) {
    const Outcome o = run("check --cases 10 " + arguments);
    INFO(o.out);
    CHECK(o.status == 2);
    CHECK(contains(o.out, why));
  };
  refused("--shard 1/2", "--shard needs --results");
  refused("--resume", "--resume needs --results");
  refused("--shard 3/2 --results r", "--shard: expected K/N with K from 1 to N");
  refused("--shard two --results r", "--shard: expected K/N");
  refused("--for 1s --results r", "--results needs a fixed number of cases");
  refused("--seed random --shard 1/2 --results r", "give all parts the same number");
  refused("--results /nowhere/r", "--results: cannot write /nowhere/r: No such file");
}

TEST_CASE("a usage error exits with 2 and names what was expected") {
  const std::pair<const char*, const char*> kErrors[] = {
      {"", "Look for bugs: run random cases"},
      {"--frobnicate", "expected a command before --frobnicate; commands: check, replay"},
      {"frobnicate", "commands: check, replay, show, plan, laws, subjects, conform, merge, faults"},
      {"frobnicate", "scenario"},
      {"check --law outputs --without outputs", "both name outputs"},
      {"check --without no-such-law", "laws` lists them"},
      {"check --mix narrow", "standard or wide"},
      {"check --seed -1", "--seed"},
      {"check --seed 1x", "--seed"},
      {"check --jobs -2", "--jobs"},
      {"check --for tomorrow", "--for: expected a duration with its unit"},
      {"check --for 90", "60s"},
      {"check --for 721h", "at most 720h"},
      {"check --cases many", "--cases"},
      {"check --cases 0", "from 1"},
      {"check --jobs 0", "from 1"},
      {"check --jobs 100000", "at most 1024"},
      {"check --seed 18446744073709551616", "--seed"},
      {"replay --seed 1 --case -1", "--case"},
      {"check --subject torch", "did you mean pytorch?"},
      {"check --device tpu", "cpu or cuda"},
      {"check --regressions /nowhere", "/nowhere"},
      {"replay", "--seed S"},
      {"replay --seed 1", "--case K"},
      {"replay --subject 'sh /nowhere.sh'", "expected a case file"},
      {"replay /nowhere.json", "/nowhere.json"},
      {"replay /nowhere.json", "No such file or directory"},
      {"plan", "expected a case file, FILE.json, got none"},
      {"plan /nowhere.json", "No such file or directory"},
      {"scenario one_segment --all", "got several of them"},
      {"replay a.json --seed 1 --case 2", "got both"},
      {"show a.json --mix standard", "--mix has no effect on a case file"},
      {"check --limit 5s", "--limit has no effect on engine"},
      {"check --subject 'sh mine.sh' --device cuda", "chooses its own"},
      {"show --seed 1 --case 2 --colour", "--colour"},
  };
  for (const auto& [arguments, expected] : kErrors) {
    INFO("rematch " << arguments);
    const Outcome o = run(arguments);
    INFO(o.out);
    CHECK(o.status == 2);
    CHECK(contains(o.out, expected));
  }
}

TEST_CASE("without a device --device cuda says so and what to do") {
  if (cuda::device_count() > 0) SKIP("a CUDA device was found");
  for (const char* arguments : {"check --device cuda", "replay --device cuda --seed 1 --case 1"}) {
    const Outcome o = run(arguments);
    INFO(o.out);
    CHECK(o.status == 2);
    CHECK(contains(o.out, "CUDA"));
    CHECK(contains(o.out, "use the CPU"));
  }
}

TEST_CASE("help and version exit with 0") {
  for (const char* arguments :
       {"--help", "check --help", "replay --help", "show --help", "laws --help", "--version"}) {
    INFO(arguments);
    CHECK(run(arguments).status == 0);
  }
}

}  // namespace rematch
