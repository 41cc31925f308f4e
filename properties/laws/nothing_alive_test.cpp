// The law about abandoned runs, on an engine whose readings are doctored.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <utility>

#include "properties/forecast/testing/small_cases.h"
#include "properties/laws/law.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using namespace testing;

class Doctored final : public Subject {
 public:
  explicit Doctored(std::function<void(std::vector<Abandonment>&)> change)
      : change_(std::move(change)) {}
  std::string_view name() const override { return "doctored"; }
  bool abandons() const override { return true; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    engine_.run(c, geometry, request, record);
    if (request.fail_forward != 0) change_(record.abandonments);
  }

 private:
  EngineSubject engine_;
  std::function<void(std::vector<Abandonment>&)> change_;
};

Case replayed() {
  Case c = case_of({2, 3}, {dense(4), layer(LayerKind::dropout)});
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  return c;
}

std::optional<Breach> judged(const Case& c, std::function<void(std::vector<Abandonment>&)> change) {
  Doctored subject(std::move(change));
  Bench bench;
  return judge(c, subject, bench, find_law("nothing-alive")).breach;
}

TEST_CASE("a run is abandoned in three ways, and leaves nothing behind") {
  std::vector<Abandonment> seen;
  CHECK_FALSE(judged(replayed(), [&](std::vector<Abandonment>& all) { seen = all; }));
  REQUIRE(seen.size() == 3);
  CHECK(seen[0].kind == Abandonment::Kind::dropped);
  CHECK(seen[1].kind == Abandonment::Kind::forward_failed);
  CHECK(seen[2].kind == Abandonment::Kind::replay_failed);
  for (const Abandonment& a : seen) {
    // Twelve weights, four biases.
    CHECK(a.live_before == 16 * 4);
    CHECK(a.live_after == a.live_before);
  }
  CHECK(seen[1].layer == 0);
  CHECK(seen[2].layer == 0);
}

TEST_CASE("the law about abandoned runs breaks at the smallest deviation") {
  using All = std::vector<Abandonment>;
  const std::pair<const char*, std::function<void(All&)>> deviations[] = {
      {"a byte stays after the graph was dropped", [](All& all) { ++all[0].live_after; }},
      {"a byte stays after the forward failed", [](All& all) { ++all[1].live_after; }},
      {"a byte stays after a replay failed", [](All& all) { ++all[2].live_after; }},
      {"a byte too many is gone", [](All& all) { --all[0].live_after; }},
      {"hooks stay", [](All& all) { all[2].surroundings_kept = false; }},
      {"random streams are elsewhere", [](All& all) { all[2].streams_kept = false; }},
      {"the layer's exception was swallowed", [](All& all) { all[2].layer = -1; }},
      {"a reading is missing", [](All& all) { all.pop_back(); }},
      {"all readings are missing", [](All& all) { all.clear(); }},
  };
  for (const auto& [what, change] : deviations) {
    INFO(what);
    const std::optional<Breach> breach = judged(replayed(), change);
    REQUIRE(breach);
    CHECK(breach->law == "nothing-alive");
    CHECK(breach->expected != breach->got);
  }
}

TEST_CASE("one case in eight is abandoned, and any that is asked for") {
  Doctored subject([](std::vector<Abandonment>&) {});
  Bench bench;
  const Law* law = find_law("nothing-alive");
  const auto index = static_cast<std::size_t>(law - laws().data());
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    Case c = replayed();
    c.seed = seed;
    if (judge(c, subject, bench).checked[index]) ++checked;
    CHECK(judge(c, subject, bench, law).checked[index]);
  }
  CHECK(checked == 2);
}

TEST_CASE("a subject that observes no events is not judged by them, any other is") {
  class Blind final : public Subject {
   public:
    explicit Blind(bool admits) : admits_(admits) {}
    std::string_view name() const override { return "blind"; }
    bool observes_events() const override { return !admits_; }
    void run(const Case& c, const Geometry& geometry, const RunRequest& request,
             Record& record) override {
      engine_.run(c, geometry, request, record);
      record.live.clear();
    }

   private:
    bool admits_;
    EngineSubject engine_;
  };
  Bench bench;
  Blind honest(true);
  CHECK(judge(replayed(), honest, bench).held());
  Blind forgetful(false);
  CHECK_FALSE(judge(replayed(), forgetful, bench).held());
}

TEST_CASE("a plain plan has no replay that could fail") {
  Case c = replayed();
  c.plan = {};
  std::size_t readings = 0;
  CHECK_FALSE(judged(c, [&](std::vector<Abandonment>& all) { readings = all.size(); }));
  CHECK(readings == 2);
}

}  // namespace
}  // namespace rematch
