#include "properties/hunt/gather.h"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <utility>

#include "properties/laws/testing/synthetic.h"
#include "properties/subjects/testing/changed.h"

namespace rematch {
namespace {

using namespace testing;

/// Hands out two prepared records.
class Prepared final : public Subject {
 public:
  explicit Prepared(Case c) : records(std::move(c)) {}
  const Declaration& declares() const override { return declaration_; }
  void run(const Case&, const Geometry&, const RunRequest& request, Record& record) override {
    detached = request.checkpointed ? detached : request.detached_layers;
    record = request.checkpointed ? records.checkpointed : records.plain;
  }

  Synthetic records;
  std::vector<int> detached;

 private:
  Declaration declaration_{.name = "prepared"};
};

/// The engine as if it were somebody else's, with what `spoil` does to the records.
class Foreign final : public Changed {
 public:
  using Spoil = std::function<void(int run, bool checkpointed, Record& record)>;
  explicit Foreign(const Spoil& spoil)
      : Changed({.name = "foreign", .scope = with_repeats(), .foreign = true},
                [this, spoil](const Case&, const RunRequest& request, Record& record) {
                  spoil(++runs, request.checkpointed, record);
                }) {}

  int runs = 0;

 private:
  static Scope with_repeats() {
    Scope scope;
    scope.options = {repeat_option()};
    return scope;
  }
};

/// The engine, counting how often it runs what.
struct Counting final : Changed {
  Counting()
      : Changed(EngineSubject().declares(),
                [this](const Case&, const RunRequest& request, Record&) {
                  const char* kind = request.checkpointed ? "checkpointed" : "plain";
                  ++runs[request.displacement != 0 ? "displaced" : kind];
                }) {}
  std::map<std::string, int> runs;
};

}  // namespace

TEST_CASE("a case is run once plain and once checkpointed, whatever the number of laws") {
  Counting subject;
  Workspace workspace;
  judge_case(synthetic_case(), subject, workspace);
  CHECK(subject.runs == std::map<std::string, int>{{"plain", 1}, {"checkpointed", 1}});
}

TEST_CASE("only laws about the slope have displaced runs made") {
  Case c = synthetic_case();
  c.dtype = DType::float64;
  Counting subject;
  Workspace workspace;
  judge_case(c, subject, workspace, all_laws() & ~laws_named({"derivatives"}));
  CHECK(subject.runs["displaced"] == 0);
  judge_case(c, subject, workspace, laws_named({"derivatives"}));
  CHECK(subject.runs["displaced"] == 4);
}

TEST_CASE("each run is announced by its name") {
  EngineSubject engine;
  Workspace workspace;
  GatherOptions options;
  std::string runs;
  options.on_run = [&](std::string_view run) { runs += std::string(run) + "; "; };
  gather(synthetic_case(), engine, workspace, options);
  CHECK(runs == "plain run; checkpointed run; ");
}

TEST_CASE("every law gets its verdict from one gathering, also after a violation") {
  Prepared subject(synthetic_case());
  Workspace workspace;
  Verdicts verdicts = judge_case(subject.records.c, subject, workspace);
  CHECK(verdicts.kept());
  CHECK(verdicts.first() == nullptr);
  // Two prepared records have nothing for some laws, and five are not observed.
  CHECK(verdicts.count(Verdict::kept) == laws().size() - 9);

  ++subject.records.checkpointed.hooks[0].count;
  --subject.records.checkpointed.executions[0].count;
  verdicts = judge_case(subject.records.c, subject, workspace);
  REQUIRE(verdicts.violations.size() == 2);
  CHECK(verdicts.first()->law == "executions");
  CHECK(verdicts.violations[1].law == "hooks");
  CHECK(verdicts.count(Verdict::violated) == 2);
  // Where counts differ, the order says nothing.
  CHECK(verdicts.count(Verdict::kept) == laws().size() - 12);
  CHECK(judge_case(subject.records.c, subject, workspace, laws_named({"outputs"})).kept());
  CHECK_FALSE(judge_case(subject.records.c, subject, workspace, laws_named({"hooks"})).kept());
}

TEST_CASE("a violation of a foreign subject that does not repeat is one of repeatability") {
  Workspace workspace;
  Case c = synthetic_case();
  c.seed = 5;
  const auto flip = [](Record& r) {
    r.data[observation(r, Quantity::output).offset] ^= std::byte{1};
  };

  Foreign sound([](int, bool, Record&) {});
  CHECK(judge_case(c, sound, workspace).kept());
  CHECK(sound.runs == 2);

  Foreign noisy([&](int run, bool checkpointed, Record& r) {
    if (checkpointed && run < 3) flip(r);
  });
  Verdicts verdicts = judge_case(c, noisy, workspace);
  REQUIRE_FALSE(verdicts.kept());
  CHECK(verdicts.first()->law == "repeatable");
  CHECK(verdicts.by_law[index_of(*find_law("outputs"))] == Verdict::violated);

  Foreign noisy_plain([&](int run, bool checkpointed, Record& r) {
    if (!checkpointed && run < 2) flip(r);
  });
  verdicts = judge_case(c, noisy_plain, workspace);
  REQUIRE_FALSE(verdicts.kept());
  CHECK(verdicts.first()->law == "repeatable");
  CHECK(verdicts.first()->place.find("plain run") != std::string::npos);

  Foreign unreliable([&](int run, bool, Record& r) {
    if (run == 2) r.error = RecordedError{"error", "a bad day"};
  });
  verdicts = judge_case(c, unreliable, workspace);
  REQUIRE_FALSE(verdicts.kept());
  CHECK(verdicts.first()->law == "repeatable");
  CHECK(verdicts.first()->expected == "error: a bad day");

  Foreign faulty([&](int, bool checkpointed, Record& r) {
    if (checkpointed) flip(r);
  });
  verdicts = judge_case(c, faulty, workspace);
  REQUIRE_FALSE(verdicts.kept());
  CHECK(verdicts.first()->law == "outputs");
  CHECK(verdicts.by_law[index_of(*find_law("repeatable"))] == Verdict::kept);
  CHECK(faulty.runs == 4);

  GatherOptions trusting;
  trusting.worth_repeating = [](const Verdicts&) { return false; };
  Foreign known([&](int, bool checkpointed, Record& r) {
    if (checkpointed) flip(r);
  });
  CHECK(judge_case(c, known, workspace, trusting).first()->law == "outputs");
  CHECK(known.runs == 2);
}

TEST_CASE("a foreign subject repeats the cases that say so") {
  Workspace workspace;
  Case c = synthetic_case();
  for (const bool repeat : {false, true}) {
    c.options = repeat ? Options{{kRepeat, "yes"}} : Options{};
    Foreign subject([](int, bool, Record&) {});
    const Verdicts verdicts = judge_case(c, subject, workspace);
    CHECK(verdicts.by_law[index_of(*find_law("repeatable"))] ==
          (repeat ? Verdict::kept : Verdict::not_applicable));
    CHECK(subject.runs == (repeat ? 3 : 2));
  }
}

TEST_CASE("a law that reads what the subject does not observe says so, and is not violated") {
  const auto blind = [](bool admits) {
    Declaration declared = EngineSubject().declares();
    if (admits) declared.observes.erase(Observable::live_bytes);
    if (admits) declared.observes.erase(Observable::execution_order);
    return Changed(declared, [](const Case&, const RunRequest&, Record& r) { r.live.clear(); });
  };
  Workspace workspace;
  Changed honest = blind(true);
  const Verdicts verdicts = judge_case(synthetic_case(), honest, workspace);
  CHECK(verdicts.kept());
  CHECK(verdicts.by_law[index_of(*find_law("live-bytes"))] == Verdict::not_observed);
  CHECK(verdicts.by_law[index_of(*find_law("recomputation-order"))] == Verdict::not_observed);
  Changed forgetful = blind(false);
  CHECK_FALSE(judge_case(synthetic_case(), forgetful, workspace).kept());
}

TEST_CASE("of a run that failed only laws about failures say anything") {
  Prepared subject(synthetic_case());
  Workspace workspace;
  subject.records.checkpointed.clear();
  subject.records.checkpointed.error = RecordedError{"error", "broke down"};
  const Verdicts verdicts = judge_case(subject.records.c, subject, workspace);
  REQUIRE(verdicts.violations.size() == 1);
  CHECK(verdicts.first()->law == "errors");
  CHECK(verdicts.first()->got == "error: broke down");
  CHECK(verdicts.count(Verdict::kept) == 1);
  CHECK(judge_case(subject.records.c, subject, workspace, laws_named({"outputs"})).kept());
}

TEST_CASE("an exception of the subject violates the law that it survives, and no other") {
  class Falling final : public Subject {
   public:
    const Declaration& declares() const override { return declaration_; }
    void run(const Case& c, const Geometry& geometry, const RunRequest& request,
             Record& record) override {
      if (request.checkpointed) throw std::runtime_error("fell over");
      engine_.run(c, geometry, request, record);
    }

   private:
    Declaration declaration_{.name = "falling"};
    EngineSubject engine_;
  };
  Falling subject;
  Workspace workspace;
  // Evidence of an earlier case must not count as this one's.
  EngineSubject engine;
  judge_case(synthetic_case(), engine, workspace);
  const Verdicts verdicts = judge_case(synthetic_case(), subject, workspace);
  REQUIRE(verdicts.violations.size() == 1);
  CHECK(verdicts.first()->law == "survives");
  CHECK(verdicts.first()->got == "checkpointed run: exception: fell over");
  CHECK(workspace.checkpointed.observations.empty());
}

TEST_CASE("a record that cannot be read violates the law that tried to") {
  Prepared subject(synthetic_case());
  Workspace workspace;
  for (LiveReading& r : subject.records.checkpointed.live) r.layer = 99;
  for (LayerValue& v : subject.records.checkpointed.values) v.layer = -5;
  subject.records.checkpointed.values[1].hash ^= 1;
  const Verdicts verdicts = judge_case(subject.records.c, subject, workspace);
  CHECK(verdicts.by_law[index_of(*find_law("live-bytes"))] == Verdict::violated);
  CHECK(verdicts.by_law[index_of(*find_law("recomputed-values"))] == Verdict::violated);
}

TEST_CASE("the reference run detaches the frozen first block") {
  Case c = synthetic_case();
  c.protocol.input_requires_grad = false;
  c.plan.sequential->choice.variant = Variant::reentrant;
  Prepared subject(c);
  Workspace workspace;
  judge_case(c, subject, workspace);
  CHECK(subject.detached == std::vector<int>{0});
}

}  // namespace rematch
