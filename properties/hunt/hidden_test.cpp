#include "properties/hunt/hidden.h"

#include <catch2/catch_test_macros.hpp>

namespace rematch {
namespace {

/// An entry wide enough for anything that goes wrong with running statistics.
KnownDivergence wide() {
  return {.id = "statistics",
          .laws = {"buffers-after-step", "reevaluation", "outputs", "losses", "input-gradients",
                   "parameter-gradients", "parameters-after-step", "recomputed-values",
                   "dropout-masks"},
          .when = {Feature::stateful_layer},
          .unless = {},
          .inject = {},
          .got = {},
          .at_most = std::nullopt,
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
  KillOptions options;
  options.seeds = 1;
  options.cases = 1500;
  // S1 updates the statistics twice, S7 never.
  const auto seen = look_for_faults({find_fault("S1"), find_fault("S7")}, profiles, options);
  for (const Sighting& sighting : seen[0]) {
    CHECK_FALSE(sighting.is_new());
    CHECK(excluded_by(sighting, profiles[0]) == nullptr);
  }
  CHECK_FALSE(seen[1][0].is_new());
  REQUIRE(excluded_by(seen[1][0], profiles[1]) != nullptr);
  CHECK(excluded_by(seen[1][0], profiles[1])->id == "statistics");
  CHECK(seen[1][1].is_new());
}

}  // namespace rematch
