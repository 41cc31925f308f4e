#include "properties/hunt/regressions.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>

#include "properties/case/json.h"
#include "properties/forecast/testing/small_cases.h"
#include "properties/hunt/hunt.h"
#include "properties/hunt/replay.h"
#include "properties/subjects/engine_subject.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

namespace fs = std::filesystem;
using testing::ScratchFolder;

fs::path repository() { return REMATCH_SOURCE_DIR; }

}  // namespace

TEST_CASE("every law holds for every regression") {
  const std::vector<fs::path> files = regression_files(repository() / "properties" / "regressions");
  CHECK_FALSE(files.empty());
  EngineSubject engine;
  for (const fs::path& file : files) {
    INFO(file.filename().string());
    const Replay again = replay(load_case(file), engine);
    CHECK(again.verdicts.kept());
    CHECK(again.verdicts.count(Verdict::kept) > 10);
  }
}

TEST_CASE("regressions are read in the order of their names, and nothing else is read") {
  const ScratchFolder folder;
  for (const char* name : {"b.json", "a.json", "README.md"}) {
    std::ofstream(folder.path() / name) << "x";
  }
  const std::vector<fs::path> files = regression_files(folder.path());
  REQUIRE(files.size() == 2);
  CHECK(files[0].filename() == "a.json");
  CHECK(files[1].filename() == "b.json");
  CHECK_THROWS_AS(regression_files(folder.path() / "a.json"), std::invalid_argument);
  CHECK_THROWS_AS(regression_files(folder.path() / "none"), std::invalid_argument);
}

TEST_CASE("a saved case is read back equal, and a second save replaces it") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "case.json";
  save_case(testing::tanh_chain(2), file);
  save_case(testing::tanh_chain(3), file);
  CHECK(load_case(file) == testing::tanh_chain(3));
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a case that cannot be saved says where") {
  CHECK_THROWS_AS(save_case(testing::tanh_chain(1), "/nowhere/case.json"), std::runtime_error);
}

TEST_CASE("a file that is no case names the file and the fault") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "faulty.json";
  std::ofstream(file) << "{\"format\": 1, \"layers\"";
  for (const fs::path& path : {file, folder.path(), folder.path() / "none.json"}) {
    CHECK(testing::contains(testing::message_of([&] { load_case(path); }), path.string()));
  }
}

TEST_CASE("a build tree's program finds the regressions of its sources") {
  const fs::path program = repository() / "build" / "release" / "bin" / "rematch";
  const auto found = default_regressions(program);
  REQUIRE(found);
  CHECK(fs::equivalent(*found, repository() / "properties" / "regressions"));
  CHECK_FALSE(default_regressions("/nowhere/bin/rematch"));
}

}  // namespace rematch
