#include "scenarios/support/recomputation_steps.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/case/json.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/engine_subject.h"

namespace rematch::scenarios {

TEST_CASE(
    "the checkpoint written by hand keeps every law where nothing is drawn or carried along") {
  EngineSubject handmade([](const Function& f, const Tensors& in, const CheckpointOptions&) {
    return handmade_checkpoint(f, in, right_steps());
  });
  Workspace workspace;
  // Two segments, one in the other; two backwards; two values across the boundary.
  const Case c = case_from_json(R"({"format": 1, "seed": 5, "input": [4, 6],
    "layers": [{"kind": "linear", "features": 8}, {"kind": "split", "features": 4},
               {"kind": "tanh"}, {"kind": "linear", "features": 4},
               {"kind": "concat", "from": [1, 1]},
               {"kind": "linear", "features": 3}],
    "plan": {"segments": [
      {"begin": 0, "end": 2, "variant": "reentrant"},
      {"begin": 2, "end": 5, "variant": "reentrant",
       "nested": [{"begin": 3, "end": 4, "variant": "reentrant"}]}]},
    "protocol": {"steps": 2, "backwards": 2, "input_requires_grad": true}})");
  const Verdicts verdicts = judge(c, handmade, workspace);
  if (const Violation* first = verdicts.first()) {
    FAIL_CHECK(first->law << " at " << first->place << ", expected " << first->expected << ", got "
                          << first->got);
  }
  CHECK(verdicts.count(Verdict::kept) > 15);
}

}  // namespace rematch::scenarios
