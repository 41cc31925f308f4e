// `rematch conform` as a whole, with subjects that are known well.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "properties/cli/testing/program.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using namespace testing;
using nlohmann::json;

json page_in(const std::filesystem::path& folder) {
  return json::parse(text_of(folder / "conform.json"));
}

}  // namespace

TEST_CASE("a page has a column for each subject, and a file for each divergence") {
  const ScratchFolder folder;
  check(run("conform engine engine:S1 --cases 300 --seed 3 --out page", folder.path()), 1,
        {"NEW engine:S1: buffers-after-step"});
  const std::filesystem::path page = folder.path() / "page";
  CHECK(contains(text_of(page / "conform.md"), "engine:S1"));
  const json found = page_in(page);
  REQUIRE(found["subjects"].size() == 2);
  CHECK(found["subjects"][0]["divergences"].empty());
  REQUIRE_FALSE(found["subjects"][1]["divergences"].empty());
  for (const json& d : found["subjects"][1]["divergences"]) {
    json kept = json::parse(text_of(page / d["file"].get<std::string>()));
    CHECK(kept["found_with"] == json{{"subject", "engine:S1"}});
    kept.erase("found_with");
    CHECK(kept == d["smallest"]["case"]);
    CHECK(run_line(d["replay"].get<std::string>(), folder.path()).status == 1);
    CHECK(run_line(d["unshrunk"].get<std::string>(), folder.path()).status == 1);
  }
}

TEST_CASE("without anything new the page is well") {
  const ScratchFolder folder;
  CHECK(run("conform engine --cases 300 --out first --quiet", folder.path()).status == 0);
  const Outcome nowhere = run("conform engine --structures 100", folder.path());
  CHECK(contains(nowhere.out, "page: rematch-page/conform.md"));
  CHECK(page_in(folder.path() / "rematch-page")["subjects"][0]["structures"] >= 100);
}

TEST_CASE("a subject that cannot be judged is a column that says so") {
  const ScratchFolder folder;
  const std::string none = "env -u REMATCH_PYTHON -u REMATCH_PYTHON_PYTORCH XDG_CACHE_HOME=/none ";
  const Outcome o =
      run("conform pytorch 'exit 7 #' engine --cases 200 --out page --quiet", folder.path(), none);
  INFO(o.out);
  CHECK(o.status == 0);
  const json found = page_in(folder.path() / "page");
  CHECK(contains(found["subjects"][0]["problem"].get<std::string>(),
                 "ci/setup --frameworks pytorch"));
  CHECK(contains(found["subjects"][1]["problem"].get<std::string>(), "exit status 7"));
  CHECK(found["subjects"][2]["cases"] == 200);
  // If nothing at all was judged, nothing is well.
  CHECK(run("conform 'exit 7 #' --cases 9", folder.path()).status == 2);
}

TEST_CASE("an earlier page is written again, and what is named on it is judged again") {
  const ScratchFolder folder;
  CHECK(run("conform engine engine:S1 --cases 200 --out a --quiet", folder.path()).status == 1);
  CHECK(run("conform --from a/conform.json --out b --quiet", folder.path()).status == 1);
  CHECK(text_of(folder.path() / "a/conform.md") == text_of(folder.path() / "b/conform.md"));
  CHECK(run("conform --from a/conform.json engine:S1 --cases 50 --out c --quiet", folder.path())
            .status == 1);
  const json again = page_in(folder.path() / "c");
  CHECK(again["subjects"][0]["cases"] == 200);
  CHECK(again["subjects"][1]["cases"] == 50);
  check(run("conform --from a/conform.json --seed 2", folder.path()), 2);
}

TEST_CASE("a page goes on where it ended, unless another state of the judge is asked for") {
  const ScratchFolder folder;
  const auto page_of = [&](const std::string& more, const std::string& names = "engine engine:S1") {
    run("conform " + names + " --out page --quiet --resume " + more, folder.path());
    return page_in(folder.path() / "page")["subjects"];
  };
  CHECK(page_of("--cases 100 --state one", "engine").size() == 1);
  const json both = page_of("--cases 50 --state one");
  CHECK(both[0]["cases"] == 100);
  CHECK(both[1]["cases"] == 50);
  CHECK(page_of("--cases 200 --state one")[0]["cases"] == 200);
  const json other = page_of("--cases 50 --state two");
  CHECK(other[0]["cases"] == 50);
  CHECK(other[1]["state"] == "two");
  const Outcome seed = run("conform engine --resume --out page --seed 9", folder.path());
  CHECK(seed.status == 2);
  CHECK(contains(seed.out, "has seed 1 of the wide mix"));
}

TEST_CASE("a subject that is gone takes nothing off a page that has more of it") {
  const ScratchFolder folder;
  std::filesystem::create_symlink(REMATCH_PROGRAM, folder.path() / "mine");
  for (const char* state : {"one", "two"}) {
    const Outcome o =
        run(std::string("conform './mine serve' --cases 20 --out page --quiet --resume --state ") +
                state + " 2>&1",
            folder.path());
    CHECK(contains(o.out, "keeps its row") == (std::string_view(state) == "two"));
    CHECK(page_in(folder.path() / "page")["subjects"][0]["cases"] == 20);
    std::filesystem::remove(folder.path() / "mine");
  }
}

TEST_CASE("an interrupt keeps what was found, and the page is written") {
  const ScratchFolder folder;
  const std::string out = (folder.path() / "page").string();
  check(run_interrupted({REMATCH_PROGRAM, "conform", "engine", "engine:S1", "--for", "1h", "--jobs",
                         "1", "--out", out}),
        130);
  const json found = page_in(out);
  CHECK(found["subjects"][0]["interrupted"] == true);
  CHECK(found["subjects"][0]["cases"] > 0);
  CHECK(contains(found["subjects"][1]["problem"].get<std::string>(), "interrupted"));
}

TEST_CASE("a mistake in the call is refused before anything is judged") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& arguments, const char* message,
                           const std::string& before = "") {
    check(run("conform " + arguments, folder.path(), before), 2, {message});
  };
  refused("nobody", "no subject is named \"nobody\"");
  refused("engine --cases 0", "--cases");
  refused("engine --mix narrow", "--mix");
  refused("--from none.json", "cannot read none.json");
  refused("engine --out /proc/none", "--out");
  refused("--all", "REMATCH_PYTHON is one Python", "REMATCH_PYTHON=python3 ");
}

}  // namespace rematch
