// Every story is a test of its own: it runs in its quick form, and all its claims hold.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "scenarios/scenario.h"

namespace rematch::scenarios {
namespace {

class StoryTest final : public Catch::ITestInvoker {
 public:
  explicit StoryTest(const Scenario& scenario) : scenario_(scenario) {}

  void invoke() const override {
    Report report;
    try {
      scenario_.run({}, report);
    } catch (const Unavailable& missing) {
      SKIP(missing.what());
    }
    CHECK(report.claims() > 0);
    for (const Report::Item& item : report.items()) {
      const Claim* claim = std::get_if<Claim>(&item);
      if (claim == nullptr) continue;
      INFO(claim->sentence);
      CHECK(claim->holds);
    }
  }

 private:
  const Scenario& scenario_;
};

bool register_stories() {
  for (const Scenario& scenario : scenarios()) {
    const std::string name = "every claim of the story " + std::string(scenario.name) + " holds";
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

}  // namespace rematch::scenarios
