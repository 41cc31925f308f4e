// The laws about devices, on an engine that only claims to run on one.
#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"
#include "properties/generate/mix.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/testing/changed.h"

namespace rematch {
namespace {

using namespace testing;

/// An engine that says that it runs on a device.
struct ClaimsDevice final : Changed {
  explicit ClaimsDevice(Change change = [](const Case&, const RunRequest&, Record&) {})
      : Changed({.name = "claims a device",
                 .observes = Observables::all().without(
                     {Observable::held_bytes, Observable::held_layers, Observable::collectives}),
                 .may_vary = true},
                std::move(change)) {}
};

std::vector<Agreement> agreements_of(const Case& c) {
  EngineSubject engine;
  Record record;
  RunRequest request;
  request.compare_layers = true;
  engine.run(c, validate(c), request, record);
  return record.agreements;
}

Case two_layers() { return case_of({2, 3}, {dense(4), layer("dropout")}); }

}  // namespace

TEST_CASE("on a device every law about it is judged, elsewhere none is") {
  Workspace workspace;
  ClaimsDevice device;
  EngineSubject host;
  for (const char* name : {"repeatable", "cross-device"}) {
    const LawSet law = laws_named({name});
    CHECK(judge_case(two_layers(), device, workspace, law).count(Verdict::kept) == 1);
    CHECK(judge_case(two_layers(), host, workspace, law).count(Verdict::kept) == 0);
  }
}

TEST_CASE("a run that differs when it is repeated is caught") {
  Workspace workspace;
  int runs = 0;
  // The last bit of the parameter gradients, in every second checkpointed run.
  ClaimsDevice device([&](const Case&, const RunRequest& request, Record& record) {
    if (!request.checkpointed || ++runs % 2 != 0) return;
    for (const Observation& o : record.observations) {
      if (o.quantity == Quantity::parameter_gradient && o.present) {
        record.data[o.offset] ^= std::byte{1};
      }
    }
  });
  const Verdicts verdicts = judge_case(two_layers(), device, workspace);
  REQUIRE_FALSE(verdicts.kept());
  CHECK(verdicts.first()->law == "repeatable");
  CHECK(verdicts.first()->place.find("parameter 0") != std::string::npos);
}

TEST_CASE("a layer that is off on the device is caught by name") {
  Workspace workspace;
  ClaimsDevice device([](const Case&, const RunRequest& request, Record& record) {
    if (!request.compare_layers) return;
    record.agreements.front().holds = false;
    record.agreements.front().device = 0.25;
  });
  const Verdicts verdicts = judge_case(two_layers(), device, workspace);
  REQUIRE_FALSE(verdicts.kept());
  CHECK(verdicts.first()->law == "cross-device");
  CHECK(verdicts.first()->place.find("layer 0 (linear) run alone, output 0") != std::string::npos);
  CHECK(verdicts.first()->got == "0.25");
}

TEST_CASE("every layer of the wide mix agrees with itself") {
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Case c = generate_case(Mix::wide, 3, i);
    for (const Agreement& a : agreements_of(c)) {
      INFO("case " << i << ", layer " << a.layer << ", " << a.what);
      CHECK(a.holds);
    }
  }
}

TEST_CASE("products have the bound of their sums, all else must have the same bits") {
  for (const Agreement& a : agreements_of(two_layers())) {
    INFO("layer " << a.layer << ", " << a.what);
    if (a.layer == 1) {
      CHECK(a.bound == 0);
      continue;
    }
    // At most four terms below one in magnitude, each rounded a handful of times.
    CHECK(a.bound > 0);
    CHECK(a.bound < 4 * 16 * 0x1p-24);
  }
}

}  // namespace rematch
