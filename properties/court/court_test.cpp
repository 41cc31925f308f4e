#include "properties/court/court.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/case/geometry.h"
#include "properties/court/external_planner.h"
#include "properties/forecast/testing/small_cases.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

CourtOptions options(std::uint64_t chains, std::vector<CourtPlanner> planners) {
  CourtOptions o;
  o.chains = chains;
  o.seed = Catch::getSeed();
  o.planners = std::move(planners);
  return o;
}

/// The optimum with another promise.
CourtPlanner liar(std::int64_t bytes, std::int64_t recomputations) {
  return {"liar", [=] {
            return PlannerFunction([=](const PlannerTask& task) {
              PlannerAnswer answer = find_planner("optimum")->plan(task);
              answer.plan.promise.peak_bytes -= bytes;
              answer.plan.promise.recomputations -= recomputations;
              return answer;
            });
          }};
}

TEST_CASE("a planner that promises a byte too few is found in each of its plans", "[plans]") {
  INFO("seed " << Catch::getSeed());
  const CourtResult result =
      hold_court(options(50, {liar(1, 0), court_planner(*find_planner("optimum"))}));
  const PlannerResult& lies = result.planners[0];
  REQUIRE(lies.trials.size() == 50);
  for (const Trial& t : lies.trials) {
    CHECK(t.bytes_broken() == 1);
    // A plan without segments is not under the law.
    CHECK(t.promise_broken == (t.promised.recomputations > 0));
    CHECK(t.extra_recomputations == 0);
    CHECK(t.extra_bytes == 0);
    CHECK(t.law.empty());
  }
  for (const Trial& t : result.planners[1].trials) CHECK(t.bytes_broken() == 0);
  // The worst case shows it again.
  REQUIRE(lies.bytes.shown);
  EngineSubject engine;
  Workspace workspace;
  const Verdicts again = judge_case(*lies.bytes.shown, engine, workspace);
  CHECK((lies.bytes.shown->plan.empty() || again.first()->law == "plan-promise"));
}

TEST_CASE("a planner that promises too few recomputations is found", "[plans]") {
  INFO("seed " << Catch::getSeed());
  const CourtResult result = hold_court(options(50, {liar(0, 1)}));
  int broken = 0;
  for (const Trial& t : result.planners[0].trials) {
    if (t.promised.recomputations < 0) continue;  // One less than none is no promise.
    CHECK(t.recomputations_broken() == 1);
    CHECK(t.promise_broken);
    ++broken;
  }
  CHECK(broken > 0);
}

TEST_CASE("planners that come with the program keep what they promise, on any number of threads",
          "[plans]") {
  INFO("seed " << Catch::getSeed());
  std::vector<CourtPlanner> all;
  for (const Planner& planner : planners()) all.push_back(court_planner(planner));
  CourtOptions o = options(60, all);
  const CourtResult result = hold_court(o);
  std::size_t plans = 0;
  for (const PlannerResult& p : result.planners) {
    INFO(p.name);
    CHECK(p.failure.empty());
    CHECK_FALSE(p.defect.shown);
    for (const Trial& t : p.trials) {
      INFO("chain " << t.chain);
      CHECK(t.recomputations_broken() == 0);
      CHECK(t.bytes_broken() == 0);
      CHECK(t.extra_recomputations >= 0);
      CHECK(t.extra_bytes >= 0);
    }
    plans += p.trials.size();
  }
  CHECK(plans > 110);
  // Threads change nothing.
  o.jobs = 3;
  const CourtResult threads = hold_court(o);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const PlannerResult& a = result.planners[i];
    const PlannerResult& b = threads.planners[i];
    REQUIRE(a.trials.size() == b.trials.size());
    CHECK(a.refusal == b.refusal);
    CHECK(a.regret.chain == b.regret.chain);
    for (std::size_t k = 0; k < a.trials.size(); ++k) {
      CHECK(a.trials[k].measured == b.trials[k].measured);
    }
  }
}

/// Four layers of tanh, and what planners are told of them.
struct Four {
  Case model = testing::tanh_chain(4);
  Chain chain = chain_of(model, validate(model));
  Frontier frontier = frontier_of(model);
  PlannerTask task = task_of(model, chain, frontier, 150);
};

TEST_CASE("an external planner is told bytes, and answers with segments or intervals", "[plans]") {
  const Four f;
  const nlohmann::json asked = nlohmann::json::parse(planner_request(f.task));
  CHECK(asked["layers"].size() == 4);
  CHECK(asked["layers"][1]["output_bytes"] == 24);
  CHECK(asked["layers"][1]["saved_bytes"] == 24);
  CHECK(asked["budget_bytes"] == 150);
  const PlannerAnswer nested =
      planner_answer(f.task,
                     R"({"segments": [{"begin": 0, "end": 3, "nested": [{"begin": 0, "end": 1}]}],
          "promise": {"peak_bytes": 7}})");
  const PlannerAnswer intervals = planner_answer(f.task, "[[0, 1], [0, 3]]");
  CHECK(nested.plan.segments == intervals.plan.segments);
  CHECK(nested.plan.promise == PromiseSpec{7, PromiseSpec::kNone});
  CHECK(nested.plan.segments[0].nested.size() == 1);
  CHECK(planner_answer(f.task, R"({"refused": "too small"})").refusal == "it says: too small");
  for (const char* wrong :
       {"", "7", "{}", "[[0, 5]]", "[[2, 2]]", R"({"segments": [{"begin": 0}]})",
        R"({"segments": [], "promise": {"bytes": 1}})", R"({"segments": [], "promise": 3})"}) {
    INFO(wrong);
    CHECK_THROWS_AS(planner_answer(f.task, wrong), std::invalid_argument);
  }
}

TEST_CASE("a planner in a process is judged, refuses and fails like one that comes with us",
          "[plans]") {
  const auto says = [](const std::string& answer) {
    return external_planner("while read -r line; do echo '" + answer + "'; done", 20);
  };
  CourtOptions o =
      options(0, {says(R"({"segments": [[0, 2]], "promise": {"peak_bytes": 1}})"),
                  says(R"({"refused": "no"})"), says("hello"), external_planner("exit 3", 20),
                  external_planner("sleep 20", 0.1), plan_file("f", "[[0, 9]]")});
  o.models = {testing::tanh_chain(4), testing::tanh_chain(5)};
  const CourtResult result = hold_court(o);
  CHECK(result.planners[0].trials.size() == 2);
  CHECK(result.planners[0].trials[0].promise_broken);
  CHECK(result.planners[1].refused == 2);
  CHECK(result.planners[2].failure.find("expected a line of JSON, got hello") != std::string::npos);
  CHECK(result.planners[3].failure.find("status 3") != std::string::npos);
  CHECK(result.planners[4].failure.find("no answer within 0.1 s") != std::string::npos);
  CHECK(result.planners[5].refused == 2);
}

}  // namespace
}  // namespace rematch
