// Subjects in other processes, from the command line.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/testing/program.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using namespace testing;

const std::string kServe = "'" REMATCH_PROGRAM " serve'";
const std::string kServeFault = "'" REMATCH_PROGRAM " serve --subject engine:S1'";

/// A profile that explains fault S1, running statistics that are updated twice.
void write_profile(const fs::path& file, const char* laws) {
  std::ofstream(file)
      << R"({"format": 1, "known": [{"id": "twice", "laws": )" << laws
      << R"(, "when": ["stateful_layer"], "why": "It is so.", "reported": "https://example.org/1", "since": "2.9"}]})";
}

}  // namespace

TEST_CASE("a hunt through two pipes gives the record hash of the hunt without") {
  const ScratchFolder folder;
  const std::string hunt = "check --cases 300 --seed 6 --jobs 2 --no-regressions --json --subject ";
  const Outcome here = run(hunt + "engine", folder.path());
  const Outcome there = run(hunt + kServe, folder.path());
  REQUIRE(here.status == 0);
  REQUIRE(there.status == 0);
  CHECK(Json::parse(here.out)["record_hash"] == Json::parse(there.out)["record_hash"]);
}

TEST_CASE("the path of a program is a subject, and the same one as its command line") {
  const ScratchFolder folder;
  folder.write("my programs/subject",
               "#!/bin/sh\nexec " + kServe.substr(1, kServe.size() - 2) + "\n");
  fs::permissions(folder.path() / "my programs/subject", fs::perms::owner_all);
  const std::string hunt = "check --cases 60 --no-regressions --json --subject ";
  const Outcome path = run(hunt + "'my programs/subject'", folder.path());
  check(path, 0);
  CHECK(Json::parse(path.out)["record_hash"] ==
        Json::parse(run(hunt + "engine", folder.path()).out)["record_hash"]);
}

TEST_CASE("what the profile knows is counted, and does not fail a check or a replay") {
  const ScratchFolder folder;
  // What moves on twice is read by later forwards.
  write_profile(folder.path() / "known.json",
                R"(["buffers-after-step", "reevaluation", "outputs", "losses", "input-gradients",
                    "parameter-gradients", "parameters-after-step", "recomputed-values",
                    "dropout-masks"])");
  const std::string subject = " --no-regressions --subject " + kServeFault;
  const Outcome all =
      run("check --cases 300 --seed 6" + subject + " --profile known.json", folder.path());
  INFO(all.out);
  CHECK(all.status == 0);
  CHECK(contains(all.out, "Known bugs:\n  twice, "));
  CHECK(contains(all.out, "; reported: https://example.org/1, since 2.9\n"));
  CHECK(contains(all.out, "no new violation (1 known bug in "));
  CHECK_FALSE(contains(all.out, "all laws kept"));
  // The first case that shows it.
  const std::size_t line = all.out.find("replay --subject ");
  REQUIRE(line != std::string::npos);
  const Outcome shown = run(all.out.substr(line, all.out.find('\n', line) - line), folder.path());
  check(shown, 0);
  CHECK(
      contains(shown.out, "known     twice: It is so. reported: https://example.org/1, since 2.9"));
  CHECK(contains(shown.out, "no new violation"));

  const Outcome found = run("check --cases 300 --seed 6 --json" + subject, folder.path());
  check(found, 1);
  const std::size_t begin = found.out.find("{\n");
  const std::size_t end = found.out.rfind("}\n") + 1;
  const Json j = Json::parse(found.out.substr(begin, end - begin));
  const std::string file = j["findings"][0]["file"];
  const std::string replay = "replay --subject " + kServeFault + " '" + file + "'";
  CHECK(run(replay, folder.path()).status == 1);
  const Outcome known = run(replay + " --profile known.json", folder.path());
  check(known, 0);
  CHECK(
      contains(known.out, "known     twice: It is so. reported: https://example.org/1, since 2.9"));

  write_profile(folder.path() / "other.json", R"(["losses"])");
  CHECK(run(replay + " --profile other.json", folder.path()).status == 1);
  CHECK(run(replay + " --profile nowhere.json", folder.path()).status == 2);
}

TEST_CASE("a subject that dies in every run is a finding that can be seen again") {
  const ScratchFolder folder;
  const std::string subject =
      write_subject(folder, "dying", "read -r line <&3\necho goodbye >&2\nexit 9");
  check(run("check --cases 20" + subject, folder.path()), 1,
        {"VIOLATED survives", "exit status 9", "goodbye", "--subject 'sh dying.sh'"});
}

TEST_CASE("every finding shows the versions that the subject says, in text, JSON and JUnit") {
  const ScratchFolder folder;
  const std::string subject = write_subject(folder, "old", "read -r line <&3\nexit 9");
  const Outcome o = run("check --cases 9 --junit report.xml" + subject, folder.path());
  INFO(o.out);
  CHECK(contains(o.out, "\n  versions: shell <5.2>\n"));
  const std::string report = text_of(folder.path() / "report.xml");
  CHECK(contains(report, "<property name=\"shell\" value=\"&lt;5.2&gt;\"/>"));
  const Outcome json = run("check --cases 9 --json 2>/dev/null" + subject, folder.path());
  const Json j = Json::parse(json.out);
  CHECK(j["versions"]["shell"] == "<5.2>");
  CHECK(j["findings"][0]["versions"]["shell"] == "<5.2>");
  const Outcome replayed = run("replay --seed 1 --case 3 --subject 'sh old.sh'", folder.path());
  CHECK(contains(replayed.out, "versions: shell <5.2>\n"));
}

TEST_CASE("the number of a case means the case that a hunt of the subject has") {
  const ScratchFolder folder;
  const std::string subject = write_subject(
      folder, "narrow", "read -r line <&3\nexit 9",
      R"(["linear","tanh","non_reentrant","early_stop","explicit_segments","trainable_input",)"
      R"("sgd","mse","float32"])");
  const std::string same = " --subject 'sh narrow.sh'";
  const Outcome found = run("check --cases 5 --seed 3" + subject, folder.path());
  check(found, 1);
  const std::size_t at = found.out.find("--mix wide --seed 3 --case ");
  REQUIRE(at != std::string::npos);
  const std::string numbered = found.out.substr(at, found.out.find('\n', at) - at);
  const Outcome again = run("replay " + numbered + same, folder.path());
  check(again, 1);
  CHECK_FALSE(contains(again.out, "dropout "));
  CHECK(contains(again.out, "exit status 9"));
  const Outcome refused =
      run("replay" + same + " " REMATCH_SOURCE_DIR "/properties/regressions/replay_draws_anew.json",
          folder.path());
  CHECK(refused.status == 2);
  CHECK(contains(refused.out, "the subject does not implement: dropout"));
}

TEST_CASE("a subject that hangs is a finding after the time that --limit gives it") {
  const ScratchFolder folder;
  write_subject(folder, "hanging", "cat <&3 >/dev/null");
  const Outcome o =
      run("replay --seed 1 --case 3 --limit 0.2s --subject 'sh hanging.sh'", folder.path());
  INFO(o.out);
  CHECK(o.status == 1);
  CHECK(contains(o.out, "no answer within 0.2 s"));
  CHECK(run("check --cases 9 --limit soon", folder.path()).status == 2);
}

TEST_CASE("a subject that cannot be judged is a mistake in the call") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& subject, const char* message,
                           const std::string& before = "") {
    check(run("check --cases 9 --subject " + subject, folder.path(), before), 2, {message});
  };
  refused("'no-such-program at all'", "exit status 127");
  refused("nobody",
          "no subject is named \"nobody\" (`rematch subjects` lists them; a path, or a command");
  refused("pytorch:both", "no subject is named \"pytorch:both\"");
  refused("mine.py", "FILE.py:FUNCTION, such as mine.py:my_checkpoint");
  refused("engine --python python3", "--python has no effect on engine");
  refused("mine.py:f --python /nothing", "subject \"mine.py:f\" cannot be judged");
  refused("'echo No module named torch >&2; false'",
          "The Python of this command has no module torch");
  CHECK(run("serve", folder.path()).status == 2);
}

TEST_CASE("a framework is run by python3 of the PATH if that has it and ci/setup made none") {
  const ScratchFolder folder;
  const std::string without =
      "env -u REMATCH_PYTHON -u REMATCH_PYTHON_PYTORCH XDG_CACHE_HOME=/none ";
  const auto judged_by = [&](const std::string& has) {
    folder.write("bin/python3",
                 "#!/bin/sh\n[ \"$1\" = -m ] && echo I run \"$@\" && exit 3\necho " + has + "\n");
    fs::permissions(folder.path() / "bin/python3", fs::perms::owner_all);
    const std::string path = "PATH='" + (folder.path() / "bin").string() + "':$PATH ";
    const Outcome o =
        run("check --cases 9 --subject 'mine.py:f --defaults'", folder.path(), without + path);
    CHECK(o.status == 2);
    return o.out;
  };
  CHECK(contains(judged_by("flax torch"), "I run -m rematch mine.py:f --defaults"));
  const std::string nowhere = judged_by("flax");
  INFO(nowhere);
  CHECK(contains(nowhere,
                 "ci/setup --frameworks pytorch`, or name yours with --python or in "
                 "REMATCH_PYTHON_PYTORCH"));
}

TEST_CASE("a JUnit report has a test for each law, and fails where a law is violated") {
  const ScratchFolder folder;
  const auto report = [&](const std::string& arguments) {
    (void)run("check --cases 300 --no-regressions --junit report.xml " + arguments, folder.path());
    return text_of(folder.path() / "report.xml");
  };
  const std::string kept = report("");
  CHECK(contains(kept, "failures=\"0\""));
  CHECK(contains(kept, "<testcase classname=\"rematch\" name=\"dropout-masks\"/>"));
  CHECK(contains(kept, "<skipped message="));
  const std::string violated = report("--subject engine:R1");
  CHECK(contains(violated, "failures=\"1\""));
  CHECK(contains(violated, "<failure message="));
  CHECK_FALSE(contains(violated, "<<"));
  const Outcome nowhere = run("check --cases 9 --junit none/report.xml", folder.path());
  check(nowhere, 2, {"--junit: cannot write none/report.xml: No such file or directory"});
  CHECK_FALSE(contains(nowhere.out, "9 cases"));
}

TEST_CASE("the smallest case of each known bug is kept where a folder is named") {
  const ScratchFolder folder;
  fs::create_directory(folder.path() / "kept");
  write_profile(folder.path() / "known.json",
                R"(["buffers-after-step", "reevaluation", "outputs", "losses", "input-gradients",
                    "parameter-gradients", "parameters-after-step", "recomputed-values",
                    "dropout-masks"])");
  const std::string line =
      "check --cases 300 --seed 6 --no-regressions --profile known.json --subject engine:S1 "
      "--keep-going";
  const Outcome o = run(line + " --save kept", folder.path());
  check(o, 0);
  CHECK(contains(
      o.out, "replay --subject engine:S1 --profile known.json kept/known-engine-S1-twice.json"));
  CHECK(run("replay --subject engine:S1 --profile known.json kept/known-engine-S1-twice.json",
            folder.path())
            .status == 0);
  CHECK(run("replay kept/known-engine-S1-twice.json", folder.path()).status == 0);
  CHECK(run("replay --subject engine:S1 kept/known-engine-S1-twice.json", folder.path()).status ==
        1);
  // Without a folder the current one stays as it was.
  (void)run(line, folder.path());
  CHECK_FALSE(fs::exists(folder.path() / "known-engine-S1-twice.json"));
}

TEST_CASE("a profile that comes with the program is found by the name of its subject") {
  const ScratchFolder folder;
  const Outcome o =
      run("check --cases 60 --no-regressions --json --profile pytorch", folder.path());
  INFO(o.out);
  CHECK(o.status == 0);
  CHECK(contains(o.out, "\"id\": \"running-statistics-twice\""));
  // A file of that name goes first.
  write_profile(folder.path() / "pytorch", R"(["losses"])");
  CHECK(
      contains(run("check --cases 60 --no-regressions --json --profile pytorch", folder.path()).out,
               "\"id\": \"twice\""));
}

TEST_CASE("where PyTorch does the same, a finding says so, and what to do") {
  const ScratchFolder folder;
  // The engine with fault S1, which says that it consists of torch.
  folder.write("torch.sh", "'" REMATCH_PROGRAM
                           "' serve --subject engine:S1 4>&1 >/dev/null | "
                           "sed -u 's/\"versions\":[^}]*}/\"versions\":{\"torch\":\"2\"}/' >&4\n");
  const std::string line = "check --cases 300 --seed 6 --no-regressions --subject 'sh torch.sh'";
  check(run(line, folder.path()), 1,
        {"hint: PyTorch itself does this, too (running-statistics-twice)", "--profile pytorch"});
  CHECK_FALSE(contains(run(line + " --profile none", folder.path()).out, "hint:"));
}

TEST_CASE("a subject in another process may have the profile of one that is known") {
  const ScratchFolder folder;
  const auto script = [](const std::string& profile) {
    return "'" REMATCH_PROGRAM
           "' serve --subject engine:S1 4>&1 >/dev/null | sed -u "
           "'s/\"versions\":[^}]*}/\"versions\":{\"torch\":\"2\"},\"profile\":\"" +
           profile + "\"/' >&4\n";
  };
  folder.write("torch.sh", script("pytorch"));
  const std::string line =
      "check --cases 300 --seed 6 --no-regressions --subject 'sh torch.sh' --law "
      "buffers-after-step";
  check(run(line, folder.path()), 0, {"running-statistics-twice"});
  CHECK(run(line + " --profile none", folder.path()).status == 1);
  folder.write("torch.sh", script("pytroch"));
  check(run(line, folder.path()), 2, {"no profile comes with rematch for \"pytroch\""});
}

TEST_CASE("a replay of a subject that records no bytes over time has no empty chart") {
  const ScratchFolder folder;
  for (const char* command : {"replay", "show"}) {
    const Outcome o =
        run(std::string(command) + " --seed 1 --case 3 --subject " + kServe, folder.path());
    INFO(o.out);
    CHECK(o.status == 0);
    CHECK_FALSE(contains(o.out, "nothing was recorded"));
    CHECK_FALSE(contains(o.out, "peak 0 B"));
  }
}

TEST_CASE("a script or a report that was written is a success, whatever the verdict") {
  const ScratchFolder folder;
  write_subject(
      folder, "writing",
      "read -r line <&3\n"
      "case $line in *'\"export\"'*) id=${line#*'\"id\":'}\n"
      "printf '{\"answer\":{\"id\":%s,\"script\":\"print()\"}}\\n' \"${id%%,*}\" >&4;; esac");
  const std::string replay = "replay --seed 1 --case 3 --subject 'sh writing.sh'";
  CHECK(run(replay, folder.path()).status == 1);
  check(run(replay + " --export writing > bug.py", folder.path()), 0);
  CHECK(text_of(folder.path() / "bug.py") == "print()");
  CHECK(run(replay + " --export writing --output /nowhere/bug.py", folder.path()).status == 2);
  const Outcome issue = run(replay + " --export issue", folder.path());
  check(issue, 0);
  for (const char* part : {"# writing: ", "Without the checkpoint: ", "With it: ",
                           "```python\nprint()\n```", "## Cause"}) {
    CHECK(contains(issue.out, part));
  }
}

TEST_CASE("a script is asked only of subjects that write some") {
  const ScratchFolder folder;
  check(run("replay --seed 1 --case 3 --export engine", folder.path()), 2,
        {"subject engine does not write scripts"});
  CHECK(run("replay --seed 1 --case 3 --output x.py", folder.path()).status == 2);
}

}  // namespace rematch
