#include "properties/hunt/like_fault.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/case/json.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {

TEST_CASE("an update that is lost is none that happens twice, and that twice is one") {
  const Case c = case_from_json(
      R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [{"kind": "batch_norm"}],
          "plan": {"segments": [{"begin": 0, "end": 1, "variant": "non_reentrant"}]},
          "protocol": {"input_requires_grad": true}})");
  const Fault& twice = *find_fault("S1");
  const auto violation_by = [&](std::string_view id) {
    EngineSubject wrong(find_fault(id)->make);
    Workspace workspace;
    GatherOptions options;
    options.laws = laws_named({"buffers-after-step"});
    return judge_case(c, wrong, workspace, options).violations.at(0);
  };
  CHECK_FALSE(contradicts(violation_by("S1"), c, twice));
  CHECK(contradicts(violation_by("S7"), c, twice));
  Violation elsewhere = violation_by("S7");
  elsewhere.place = "step 0, buffer 1 (layer 0 running_var), element 0";
  CHECK_FALSE(contradicts(elsewhere, c, twice));
  elsewhere.law = "outputs";
  CHECK_FALSE(contradicts(elsewhere, c, twice));
}

}  // namespace rematch
