// A subject whose layers are known from its plain run alone is held to what its plans imply.
#include "properties/forecast/measured_facts.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/forecast/engine_facts.h"
#include "properties/forecast/testing/small_cases.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using namespace testing;

/// An engine of whose layers only identities and views are told: the rest is measured.
class Measured final : public Subject {
 public:
  const Declaration& declares() const override { return declaration_; }
  bool facts(const Case& c, const Geometry& geometry, const Record& plain,
             Facts& facts) const override {
    engine_facts(c, geometry, true, facts);
    // Nothing of the tables' saves, draws and computations survives.
    for (LayerFacts& f : facts.layers) {
      f.saved = f.own = 0;
      f.drawn = 1000;
      f.ops = f.ops == 0 ? 1 : 0;
    }
    measure_facts(c, geometry, plain, declaration_.observes, facts);
    return true;
  }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    engine_.run(c, geometry, request, record);
  }

 private:
  Declaration declaration_{
      .name = "measured",
      .observes = Observables::all().without({Observable::displacement, Observable::host_agreement,
                                              Observable::live_bytes, Observable::held_bytes,
                                              Observable::held_layers, Observable::collectives})};
  EngineSubject engine_;
};

}  // namespace

TEST_CASE("an engine whose facts are measured keeps every law about its plans") {
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    HuntOptions options;
    options.mix = mix;
    options.seed = 31;
    options.cases = 3000;
    options.jobs = 2;
    options.make_subject = [] { return std::make_unique<Measured>(); };
    const HuntResult result = hunt(options);
    for (const Finding& f : result.findings) {
      FAIL_CHECK(f.violation.law << " at " << f.violation.place << ": expected "
                                 << f.violation.expected << ", got " << f.violation.got << "\n"
                                 << describe(f.smallest));
    }
    const VerdictCounts& saved = result.verdicts[index_of(*find_law("saved-bytes"))];
    // For some plans the plain run says too little: a reentrant segment makes values require grad
    // that do not in the plain run; and it says nothing about casts.
    CHECK(saved[static_cast<std::size_t>(Verdict::kept)] > 1500);
  }
}

TEST_CASE("measured facts are those of the engine's tables, where the plain run shows them") {
  Case c = case_of({3, 4}, {dense(4), layer("gelu"), layer("batch_norm"), layer("dropout"),
                            layer("tanh"), dense(2)});
  c.layers[3].p = 0.5;
  const Geometry g = validate(c);
  EngineSubject engine;
  Record record;
  RunRequest request;
  request.layer_values = true;
  engine.run(c, g, request, record);
  Facts table;
  engine_facts(c, g, true, table);
  Facts measured = table;
  measure_facts(c, g, record, Measured().declares().observes, measured);
  CHECK(measured.measured);
  for (int i = 0; i < 6; ++i) {
    INFO("layer " << i);
    CHECK(measured.of(i).drawn == table.of(i).drawn);
    CHECK(measured.of(i).ops == table.of(i).ops);
    const auto own = measured.own_of(measured.of(i));
    const auto expected = table.own_of(table.of(i));
    CHECK(std::vector(own.begin(), own.end()) == std::vector(expected.begin(), expected.end()));
  }
}

TEST_CASE("which layers save something else than in the plain run is known") {
  // A value that passes through a reentrant segment requires grad behind it.
  Case c = case_of({1, 2}, {layer("relu"), layer("mul"), layer("tanh")});
  c.further_inputs = 1;
  c.layers[1].from = {{-1, 1}};
  c.protocol.input_requires_grad = true;
  c.plan.segments = {segment(0, 1, Variant::reentrant)};
  Measured subject;
  Workspace workspace;
  judge_case(c, subject, workspace);
  CHECK_FALSE(workspace.forecast.saves_known);
  CHECK(workspace.forecast.saves_unknown == std::vector{false, true, false});
  c.plan.segments = {segment(0, 1, Variant::non_reentrant)};
  judge_case(c, subject, workspace);
  CHECK(workspace.forecast.saves_known);
  CHECK(workspace.forecast.saves_unknown == std::vector{false, false, false});
}

TEST_CASE("of a segment that keeps what it should drop the bytes tell, whatever layers save") {
  // Checkpoints nothing: what its layers save stays.
  class Keeps final : public Subject {
   public:
    const Declaration& declares() const override { return declaration_; }
    bool facts(const Case& c, const Geometry& geometry, const Record& plain,
               Facts& facts) const override {
      engine_facts(c, geometry, true, facts);
      measure_facts(c, geometry, plain, declaration_.observes, facts);
      return true;
    }
    void run(const Case& c, const Geometry& geometry, const RunRequest& request,
             Record& record) override {
      RunRequest plain = request;
      plain.checkpointed = false;
      engine_.run(c, geometry, plain, record);
    }

   private:
    Declaration declaration_{
        .name = "keeps",
        .observes = {Observable::saved_bytes, Observable::exact_bytes, Observable::saved_tensors}};
    EngineSubject engine_;
  };
  HuntOptions options;
  options.cases = 200;
  options.make_subject = [] { return std::make_unique<Keeps>(); };
  const HuntResult result = hunt(options);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].violation.law == "saved-bytes");
}

TEST_CASE("a segment that is differentiated as a whole is recomputed whatever its layers save") {
  // Neither of the two saves anything.
  Case c = case_from_json(R"({"format": 1, "input": [2, 4], "layers": [{"kind": "flatten"},
      {"kind": "add", "from": [0, 0]}, {"kind": "relu"}],
      "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant", "early_stop": false}]},
      "protocol": {"input_requires_grad": true}})");
  const auto executions = [&](bool whole) {
    const Geometry geometry = validate(c);
    Facts facts;
    engine_facts(c, geometry, true, facts);
    if (whole) save_in_every_layer(facts);
    Forecast f;
    forecast(c, geometry, facts, f);
    return f.executions;
  };
  CHECK(executions(false) == std::vector<int>{1, 1, 1});
  CHECK(executions(true) == std::vector<int>{2, 2, 1});
  c.protocol.input_requires_grad = false;
  CHECK(executions(true) == std::vector<int>{1, 1, 1});
}

}  // namespace rematch
