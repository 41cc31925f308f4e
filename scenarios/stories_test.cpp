// Every story is a test of its own: it runs in its quick form, all its claims hold, and reports/
// and pictures/ show what it found.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "properties/testing/shell.h"
#include "scenarios/report/render.h"

namespace rematch::scenarios {
namespace {

namespace fs = std::filesystem;
using rematch::testing::text_of;

const fs::path kRoom = REMATCH_SOURCE_DIR "/scenarios";
const fs::path kOutput = REMATCH_SCENARIO_OUTPUT;
constexpr std::string_view kAgain =
    "to accept what the stories find now: rematch scenario --readme scenarios";
/// Largest picture that the repository takes.
constexpr std::size_t kMaxPicture = 60000;

/// Leaves what was found under the build tree, and says whether it is what the room shows.
bool shown_as_found(const fs::path& name, const std::string& found,
                    [[maybe_unused]] const std::string& shown) {
  fs::create_directories((kOutput / name).parent_path());
  std::ofstream(kOutput / name, std::ios::binary) << found;
#ifdef REMATCH_NATIVE
  // Bits, and with them digits, are those of this machine.
  return true;
#else
  return found == shown;
#endif
}

/// The pictures of a story that the room has.
std::set<std::string> pictures_of(std::string_view story) {
  std::set<std::string> names;
  if (!fs::exists(kRoom / "pictures")) return names;
  for (const auto& entry : fs::directory_iterator(kRoom / "pictures")) {
    const std::string name = entry.path().filename().string();
    if (name.substr(0, name.rfind('-')) == story) names.insert(name);
  }
  return names;
}

class StoryTest final : public Catch::ITestInvoker {
 public:
  explicit StoryTest(const Scenario& scenario) : scenario_(scenario) {}

  void invoke() const override {
    Report report;
    scenario_.run({}, report);
    CHECK(report.claims() > 0);
    std::set<std::string> pictures;
    for (const Report::Item& item : report.items()) {
      if (const auto* claim = std::get_if<Claim>(&item)) {
        INFO(claim->sentence);
        CHECK(claim->holds);
      } else if (const auto* chart = std::get_if<Chart>(&item)) {
        const std::string name =
            picture_name(scenario_.name, static_cast<int>(pictures.size()) + 1);
        pictures.insert(name);
        const std::string picture = svg(*chart);
        INFO("pictures/" << name << "; " << kAgain);
        CHECK(picture.size() < kMaxPicture);
        CHECK(shown_as_found(name, picture, text_of(kRoom / "pictures" / name)));
      }
    }
    INFO(kAgain);
    CHECK(pictures_of(scenario_.name) == pictures);
    const std::string name = std::string(scenario_.name) + ".md";
    INFO("found: " << kOutput / name);
    CHECK(shown_as_found(name, markdown(scenario_, report), text_of(kRoom / "reports" / name)));
  }

 private:
  const Scenario& scenario_;
};

bool register_stories() {
  for (const Scenario& scenario : scenarios()) {
    const std::string name =
        "the claims of the story " + std::string(scenario.name) + " hold, and its report says so";
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
    CHECK_FALSE(scenario.in_pytorch.text.empty());
    CHECK_FALSE(scenario.in_pytorch.seen().empty());
    for (const Recorded& r : scenario.in_pytorch.seen()) {
      INFO(scenario.name << ": " << r.probe << ", " << r.field);
      REQUIRE(seen.count(std::string(r.probe)) == 1);
      const Json& fields = seen[std::string(r.probe)];
      REQUIRE(fields.contains(std::string(r.field)));
      CHECK(fields[std::string(r.field)] == Json::parse(r.value));
    }
  }
}

TEST_CASE(
    "README.md has every question with a link to its report, and there are no other reports") {
  INFO(kAgain);
  const bool same = text_of(kRoom / "README.md") == readme(scenarios());
  CHECK(same);
  std::set<std::string> reports;
  for (const auto& entry : fs::directory_iterator(kRoom / "reports")) {
    reports.insert(entry.path().stem().string());
  }
  std::set<std::string> names;
  for (const Scenario& scenario : scenarios()) names.insert(std::string(scenario.name));
  CHECK(reports == names);
}

}  // namespace rematch::scenarios
