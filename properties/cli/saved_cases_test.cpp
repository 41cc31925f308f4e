// Saved cases, which a check judges before it hunts, as users of the program meet them.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/cli/testing/program.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using namespace testing;

}  // namespace

TEST_CASE("a saved case that violates a law ends the check before the hunt") {
  const Outcome o =
      run("check --subject engine:R1 --regressions " REMATCH_SOURCE_DIR "/properties/regressions");
  CHECK(o.status == 1);
  CHECK(contains(o.out, "found in: "));
  CHECK(contains(o.out, "no random case was run after that"));
  CHECK_FALSE(contains(o.out, ", 0 checks"));
  CHECK_FALSE(contains(o.out, "; 0 checks"));
  CHECK_FALSE(contains(o.out, "all laws kept"));
}

TEST_CASE("a finding in a saved case is shrunk, and its lines show it again") {
  const ScratchFolder folder;
  // The first case of a hunt that violates a law, which is a large one.
  const Json found =
      json_in(run("check --subject engine:R1 --no-regressions --json", folder.path()).out);
  const std::string unshrunk = found["findings"][0]["unshrunk"];
  const std::size_t at = unshrunk.find("--mix");
  const Json large =
      Json::parse(run("show --json " + unshrunk.substr(at), folder.path()).out)["case"];
  folder.write("mine/large.json", large.dump());
  const std::string line =
      "check --subject engine:R1 --no-regressions --regressions mine --cases 1 --json";
  const Json j = json_in(run(line, folder.path()).out);
  CHECK(j["cases"] == 0);
  CHECK(j["saved_cases"] == 1);
  CHECK(j["checks"] > 0);
  const Json& finding = j["findings"].at(0);
  CHECK(finding["law"] == "dropout-masks");
  CHECK(finding["found_in"] == "mine/large.json");
  CHECK(finding["saved_case"] == true);
  CHECK(finding["case"]["layers"].size() < large["layers"].size());
  CHECK(fs::exists(folder.path() / finding["file"].get<std::string>()));
  for (const char* name : {"again", "unshrunk"}) {
    check(run_line(finding[name], folder.path()), 1, {"VIOLATED      dropout-masks"});
  }
}

TEST_CASE("a finding is judged again with the subject that found it, unless another one is named") {
  const ScratchFolder folder;
  const Json found =
      json_in(run("check --subject engine:R1 --no-regressions --json", folder.path()).out);
  const std::string file = found["findings"][0]["file"];
  check(run("replay " + file, folder.path()), 1, {"\njudged: engine:R1, as the file says\n"});
  CHECK(json_in(run("replay --json " + file, folder.path()).out)["subject"] == "engine:R1");

  check(run("replay --subject engine " + file, folder.path()), 0,
        {"\njudged: engine; the file was found with engine:R1\n"});

  Json old = Json::parse(text_of(folder.path() / file));
  CHECK(old.erase("found_with") == 1);
  folder.write("old.json", old.dump());
  check(run("replay old.json", folder.path()), 0,
        {"\njudged: engine; the file names no subject, --subject does\n"});
}

TEST_CASE("a file starts no command by itself, but says how it is started") {
  const ScratchFolder folder;
  Json c = Json::parse(text_of(regression("loss_of_zero")));
  for (const char* subject :
       {"touch started", "./program", "pytorch; touch started", "pytorch $(touch started)",
        "mine.py:f | touch started", "touch \033[31m started"}) {
    c["found_with"] = {{"subject", subject}};
    folder.write("case.json", c.dump());
    const Outcome o = run("replay case.json", folder.path());
    check(o, 2, {"which a file does not start by itself: give --subject"});
    CHECK_FALSE(contains(o.out, "\033"));
    CHECK_FALSE(fs::exists(folder.path() / "started"));
  }
}

TEST_CASE("saved cases of one's own are judged beside those that come with the program") {
  const ScratchFolder folder;
  folder.write("mine/a.json", text_of(regression("replay_draws_anew")));
  folder.write("yours/b.json", text_of(regression("loss_of_zero")));
  const auto saved = [&](const std::string& options) {
    return Json::parse(run("check --cases 1 --json " + options, folder.path()).out)["saved_cases"]
        .get<int>();
  };
  const int built_in = saved("");
  CHECK(built_in > 10);
  CHECK(saved("--regressions mine --regressions yours") == built_in + 2);
  CHECK(saved("--no-regressions --regressions mine") == 1);
  CHECK(saved("--regressions " REMATCH_SOURCE_DIR "/properties/regressions") == built_in);
}

}  // namespace rematch
