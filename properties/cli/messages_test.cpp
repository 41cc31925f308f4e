// What a user reads who mistypes something, asks for help, or stops a hunt.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "properties/cli/commands.h"
#include "properties/cli/testing/program.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using namespace testing;

const std::string kProgram = "'" REMATCH_PROGRAM "'";

/// The words of a text, a blank apart.
std::string unwrapped(const std::string& text) {
  std::istringstream in(text);
  std::string words;
  for (std::string word; in >> word;) words += (words.empty() ? "" : " ") + word;
  return words;
}

}  // namespace

TEST_CASE("a slip is answered in one line that says what was probably meant") {
  const std::pair<const char*, const char*> kSlips[] = {
      {"chekc", "no command is named \"chekc\"; did you mean check?"},
      {"check --subject pytroch", "no subject is named \"pytroch\"; did you mean pytorch?"},
      {"check --subject pytorch:renetrant", "did you mean pytorch:reentrant?"},
      {"check --subject egnine", "did you mean engine?"},
      {"check --casse 3", "check has no option --casse; did you mean --cases?"},
      {"check --casse=3", "check has no option --casse; did you mean --cases?"},
      {"check --law dropuot-masks", "did you mean dropout-masks?"},
      {"check --without lossess", "did you mean losses?"},
      {"check --mix wied", "expected standard or wide, got \"wied\"; did you mean wide?"},
      {"check --profile pytroch", "did you mean pytorch?"},
      {"faults --fault R11x", "no fault is named R11x"},
      {"check 3", "check takes no argument \"3\""},
      {"check --cases", "--cases: expected N, got nothing"},
      {"check --save /nowhere", "--save: expected a folder that exists, got \"/nowhere\""},
      {"check --subject engine --variant reentrant", "--variant has no effect on engine"},
      {"check --subject mine.py:f --variant renetrant", "did you mean reentrant?"},
      {"laws dropuot-masks", "did you mean dropout-masks?"},
      {"replay --seed 1 --case 1 --output x", "--output has an effect only with --export"},
      {"conform", "conform expects the names of implementations"},
  };
  for (const auto& [arguments, expected] : kSlips) {
    INFO("rematch " << arguments);
    const Outcome o = run(arguments);
    check(o, 2);
    CHECK(o.out.starts_with("rematch: "));
    CHECK(contains(o.out, expected));
    CHECK(std::count(o.out.begin(), o.out.end(), '\n') == 1);
    CHECK(o.out.size() < 400);
  }
}

TEST_CASE("the list of subjects has every framework, grouped, and what to do for those not there") {
  const std::string none = "env -u REMATCH_PYTHON -u REMATCH_PYTHON_MLX XDG_CACHE_HOME=/none ";
  check(run("subjects", fs::temp_directory_path(), none), 0,
        {"pytorch:reentrant", "engine:R1", "mlx, not set up: ", "REMATCH_PYTHON_MLX"});
  const Json list = Json::parse(run("subjects --json").out);
  CHECK(list.size() == subject_names().size());
}

TEST_CASE("a program without its stories says what makes them") {
  const ScratchFolder folder;
  fs::copy_file(REMATCH_PROGRAM, folder.path() / "rematch");
  check(run_line("./rematch scenario", folder.path()), 2,
        {"`ci/build release rematch-scenario` makes it"});
}

TEST_CASE("the help of a command has its own examples, and the program's lists every command") {
  check(run("--version"), 0, {"rematch "});
  const Outcome help = run("--help");
  check(help, 0);
  const std::string all = unwrapped(help.out);
  for (const cli::CommandEntry* command : cli::commands()) {
    INFO(command->name);
    const Outcome o = run(std::string(command->name) + " --help");
    check(o, 0, {command->examples});
    CHECK_FALSE(contains(o.out, "Exit status"));
    CHECK(contains(all, command->summary) == !command->internal);
    // An example is of its command, but for those that say what comes before it.
    if (!command->internal) {
      CHECK(contains(o.out, "rematch " + std::string(command->name)));
    }
    for (const cli::CommandEntry* other : cli::commands()) {
      if (other != command && !other->examples.empty()) {
        CHECK_FALSE(contains(o.out, other->examples));
      }
    }
  }
  CHECK_FALSE(contains(all, ":DIR"));
}

TEST_CASE("help promises the programs that lie beside this one, and no others") {
  const ScratchFolder folder;
  fs::copy_file(REMATCH_PROGRAM, folder.path() / "rematch");
  const Outcome alone = run_line("./rematch --help", folder.path());
  check(alone, 0);
  CHECK_FALSE(contains(alone.out, "scenario"));
  fs::copy_file(REMATCH_PROGRAM, folder.path() / "rematch-scenario");
  CHECK(contains(run_line("./rematch --help", folder.path()).out, "rematch scenario"));
}

TEST_CASE("conform says how long everything would take, and hunts in nothing") {
  const Outcome o = run("conform --for 60s");
  check(o, 2, {"--all"});
  // A minute for each of the implementations that the message counts.
  const std::size_t at = o.out.find("all ");
  REQUIRE(at != std::string::npos);
  const int count = std::stoi(o.out.substr(at + 4));
  CHECK(count > 40);
  CHECK(contains(o.out, fmt::format("{:.1f} hours", count / 60.0)));
}

TEST_CASE("a hunt that is stopped does not wait for a subject that gives no answer") {
  const ScratchFolder folder;
  const std::string subject =
      write_subject(folder, "hanging", "read -r line <&3\ntouch started\nexec cat <&3 >/dev/null");
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Outcome o = run_line("(" + kProgram + " check" + subject +
                                 " --for 1h & p=$!; "
                                 "until [ -e started ]; do :; done; kill -INT $p; wait $p) 2>&1",
                             folder.path());
  INFO(o.out);
  CHECK(o.status == 130);
  CHECK(contains(o.out, "interrupted"));
  // One run may take 60 s, and is tried twice.
  CHECK(Clock::now() - begin < std::chrono::seconds(30));
}

}  // namespace rematch
