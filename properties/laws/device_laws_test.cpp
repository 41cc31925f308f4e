// The laws about devices, on an engine that only claims to run on one.
#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"
#include "properties/generate/mix.h"
#include "properties/laws/law.h"
#include "properties/subjects/engine_subject.h"
#include "properties/subjects/layer_agreement.h"

namespace rematch {
namespace {

using namespace testing;

class ClaimsDevice : public Subject {
 public:
  std::string_view name() const override { return "claims a device"; }
  bool on_device() const override { return true; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    engine_.run(c, geometry, request, record);
  }
  std::vector<LayerAgreement> compare_layers(const Case& c, const Geometry& geometry) override {
    return engine_.compare_layers(c, geometry);
  }

 private:
  EngineSubject engine_;
};

/// Flips the last bit of the parameter gradients in every second checkpointed run.
class Unsteady final : public ClaimsDevice {
 public:
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    ClaimsDevice::run(c, geometry, request, record);
    if (!request.checkpointed || ++runs_ % 2 != 0) return;
    for (const Observation& o : record.observations) {
      if (o.quantity == Quantity::parameter_gradient && o.present) {
        record.data[o.offset] ^= std::byte{1};
      }
    }
  }

 private:
  int runs_ = 0;
};

class Inexact final : public ClaimsDevice {
 public:
  std::vector<LayerAgreement> compare_layers(const Case& c, const Geometry& geometry) override {
    std::vector<LayerAgreement> all = ClaimsDevice::compare_layers(c, geometry);
    all.front().holds = false;
    all.front().device = 0.25;
    return all;
  }
};

Case two_layers() { return case_of({2, 3}, {dense(4), layer(LayerKind::dropout)}); }

}  // namespace

TEST_CASE("on a device every law about it is checked, elsewhere none is") {
  Bench bench;
  ClaimsDevice device;
  EngineSubject host;
  for (const char* name : {"repeatable", "cross-device"}) {
    CHECK(judge(two_layers(), device, bench, find_law(name)).checked.count() == 1);
    CHECK(judge(two_layers(), host, bench, find_law(name)).checked.none());
  }
}

TEST_CASE("a run that differs when it is repeated is caught") {
  Bench bench;
  Unsteady device;
  const Verdict verdict = judge(two_layers(), device, bench);
  REQUIRE(verdict.breach);
  CHECK(verdict.breach->law == "repeatable");
  CHECK(verdict.breach->place.find("parameter 0") != std::string::npos);
}

TEST_CASE("a layer that is off on the device is caught by name") {
  Bench bench;
  Inexact device;
  const Verdict verdict = judge(two_layers(), device, bench);
  REQUIRE(verdict.breach);
  CHECK(verdict.breach->law == "cross-device");
  CHECK(verdict.breach->place.find("layer 0 (linear) by itself, output 0") != std::string::npos);
  CHECK(verdict.breach->got == "0.25");
}

TEST_CASE("every layer of the wide mix agrees with itself") {
  EngineSubject engine;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Case c = generate_case(Mix::wide, 3, i);
    for (const LayerAgreement& a : engine.compare_layers(c, validate(c))) {
      INFO("case " << i << ", layer " << a.layer << ", " << a.what);
      CHECK(a.holds);
    }
  }
}

TEST_CASE("products have the bound of their sums, all else must have the same bits") {
  EngineSubject engine;
  const Case c = two_layers();
  for (const LayerAgreement& a : engine.compare_layers(c, validate(c))) {
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
