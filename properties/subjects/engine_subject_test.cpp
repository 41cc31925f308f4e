#include "properties/subjects/engine_subject.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"

namespace rematch {
namespace {

using testing::case_of;
using testing::dense;
using testing::layer;
using testing::segment;

}  // namespace

TEST_CASE("the engine's own checkpoint() handed in as another one keeps every law") {
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    HuntOptions options;
    options.mix = mix;
    options.cases = 500;
    options.make_subject = [] { return std::make_unique<EngineSubject>(checkpoint); };
    CHECK(hunt(options).findings.empty());
  }
}

TEST_CASE(
    "another checkpoint() runs every checkpointed segment, and breaks the law that it breaks") {
  int calls = 0;
  EngineSubject subject([&](const Function& f, const Tensors& in, const CheckpointOptions&) {
    ++calls;
    return f(in);
  });
  Case c = case_of({2, 3}, {dense(3), layer("tanh"), dense(3), layer("tanh")});
  c.plan.segments = {segment(0, 2, Variant::non_reentrant), segment(2, 3, Variant::non_reentrant)};
  Workspace workspace;
  const Verdicts verdicts = judge_case(c, subject, workspace);
  REQUIRE_FALSE(verdicts.kept());
  // Nothing was checkpointed: the values are right, the counts are not.
  CHECK(verdicts.first()->law == "executions");
  CHECK(calls == 2);

  c.plan.segments.clear();
  c.plan.sequential = SequentialSpec{.segments = 4, .last_stored = true, .choice = {}};
  calls = 0;
  CHECK_FALSE(judge_case(c, subject, workspace).kept());
  CHECK(calls == 3);
}

}  // namespace rematch
