#include "properties/hunt/faults_by_profile.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/case/json.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/like_fault.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

/// An entry wide enough for anything that goes wrong with running statistics.
KnownDivergence wide() {
  return {.id = "statistics",
          .laws = {"buffers-after-step", "reevaluation", "outputs", "losses", "input-gradients",
                   "parameter-gradients", "parameters-after-step", "recomputed-values",
                   "dropout-masks"},
          .when = {Feature::stateful_layer},
          .why = "It is so."};
}

/// The same, of a subject that updates them twice.
KnownDivergence narrow() {
  KnownDivergence entry = wide();
  entry.faults = {"S1"};
  return entry;
}

}  // namespace

TEST_CASE("an entry that names a fault explains it and hides no other, and a wide one hides both") {
  const std::vector<Profile> profiles{Profile({wide()}), Profile({narrow()})};
  FaultHuntOptions options;
  options.seeds = 1;
  options.cases = 1500;
  // S1 updates the statistics twice, S7 never.
  const auto by_profile = judge_faults_by({find_fault("S1"), find_fault("S7")}, profiles, options);
  for (const FaultByProfile& seen : by_profile[0]) {
    CHECK_FALSE(seen.is_new());
    CHECK(entry_that_names(seen, profiles[0]) == nullptr);
  }
  CHECK_FALSE(by_profile[1][0].is_new());
  REQUIRE(entry_that_names(by_profile[1][0], profiles[1]) != nullptr);
  CHECK(entry_that_names(by_profile[1][0], profiles[1])->id == "statistics");
  CHECK(by_profile[1][1].is_new());
}

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

TEST_CASE("a state that a policy's kept results write again may go back to an earlier one") {
  const Case c = case_from_json(
      R"({"format": 1, "seed": 3509325091, "input": [3, 6], "layers": [{"kind": "delayed_scaling"}],
          "plan": {"segments": [{"begin": 0, "end": 1, "variant": "non_reentrant",
                                 "keep": [{"op": "delayed_scaling"}]}]},
          "protocol": {"microbatches": 2, "forwards_first": true, "input_requires_grad": true}})");
  Violation back;
  back.law = "buffers-after-step";
  back.place = "step 0, buffer 0 (layer 0 scale), element 0 (first of 1 that differ, of 1)";
  back.expected = "2.16859102 (0x400aca32)";
  back.got = "2.07775927 (0x4004fa02)";
  CHECK_FALSE(contradicts(back, c, *find_fault("S1")));
  CHECK_FALSE(contradicts(back, c, *find_fault("S10")));
}

}  // namespace rematch
