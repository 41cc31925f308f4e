// Every story is a test of its own: all its claims hold, and approved.json has the digest of what
// it found.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/testing/shell.h"
#include "scenarios/report/render.h"

namespace rematch::scenarios {
namespace {

namespace fs = std::filesystem;
using rematch::testing::text_of;

const fs::path kRoom = REMATCH_SOURCE_DIR "/scenarios";
const fs::path kOutput = REMATCH_SCENARIO_OUTPUT;
constexpr std::string_view kAgain =
    "to accept what the stories find now: rematch scenario --approve scenarios";

void write(const fs::path& name, const std::string& text) {
  fs::create_directories(kOutput);
  std::ofstream(kOutput / name, std::ios::binary) << text;
}

class StoryTest final : public Catch::ITestInvoker {
 public:
  explicit StoryTest(const Scenario& scenario) : scenario_(scenario) {}

  void invoke() const override {
    Report report;
    scenario_.run({}, report);
    CHECK(report.claims() > 0);
    for (const Report::Item& item : report.items()) {
      const auto* claim = std::get_if<Claim>(&item);
      if (claim == nullptr) continue;
      INFO(claim->sentence);
      CHECK(claim->holds);
    }
    const std::string& name = scenario_.name;
#ifdef REMATCH_NATIVE
    // Bits, and with them digits, are those of this machine.
    const bool approved = true;
#else
    const bool approved = text_of(kRoom / "approved.json").find("\n" + digest(scenario_, report)) !=
                          std::string::npos;
#endif
    // Pages that were approved stay beside those that are not, to be compared.
    const std::string received = approved ? "" : "received-";
    write(received + name + ".md", page(scenario_, report, 100));
    INFO("found: " << kOutput / (received + name + ".md") << "; compare it with " << name
                   << ".md beside it, of a run before the change; " << kAgain);
    CHECK(approved);
  }

 private:
  const Scenario& scenario_;
};

bool register_stories() {
  for (const Scenario& scenario : scenarios()) {
    const std::string name =
        "the claims of the story " + scenario.name + " hold, and its digest is approved";
    const Catch::AutoReg registered(
        Catch::Detail::unique_ptr<Catch::ITestInvoker>(new StoryTest(scenario)),
        CATCH_INTERNAL_LINEINFO, "", Catch::NameAndTags{name, "[story]"});
  }
  return true;
}

const bool stories_registered = register_stories();

}  // namespace

TEST_CASE("every story can be found by its name and says what was asked, where, and the answer") {
  CHECK(stories_registered);
  for (const Scenario& scenario : scenarios()) {
    CHECK(find_scenario(scenario.name) == &scenario);
    CHECK_FALSE(scenario.question.empty());
    CHECK_FALSE(scenario.source.empty());
    CHECK_FALSE(scenario.answer.empty());
  }
  CHECK(find_scenario("") == nullptr);
}

TEST_CASE("what every story advises to do in PyTorch is borne out by what PyTorch was seen to do") {
  using Json = nlohmann::json;
  const Json record = Json::parse(text_of(REMATCH_SOURCE_DIR "/golden/semantics/semantics.json"));
  std::map<std::string, Json> seen;
  for (const Json& probe : record["probes"]) seen[probe["id"]] = probe["seen"];
  for (const Scenario& scenario : scenarios()) {
    CHECK_FALSE(scenario.advice.empty());
    CHECK_FALSE(scenario.recorded.empty());
    for (const Recorded& r : scenario.recorded) {
      INFO(scenario.name << ": " << r.probe << ", " << r.field);
      REQUIRE(seen.count(r.probe) == 1);
      REQUIRE(seen[r.probe].contains(r.field));
      CHECK(seen[r.probe][r.field] == Json::parse(r.value));
    }
  }
}

TEST_CASE("every section of README.md is a story, in order, and a digest of each is approved") {
  INFO(kAgain);
  std::vector<std::string> sections;
  for (std::size_t at = 0; (at = kReadme.find("\n### ", at)) != std::string_view::npos;) {
    at += 5;
    sections.emplace_back(kReadme.substr(at, kReadme.find('\n', at) - at));
  }
  const auto approved = nlohmann::ordered_json::parse(text_of(kRoom / "approved.json"));
  std::vector<std::string> names;
  for (const auto& [name, digest] : approved.items()) names.push_back(name);
  std::vector<std::string> told;
  for (const Scenario& scenario : scenarios()) told.push_back(scenario.name);
  CHECK(names == told);
  CHECK(sections == told);
}

}  // namespace rematch::scenarios
