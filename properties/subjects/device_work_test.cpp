// Work that the cases of a hunt ask of a device. It decides the speed of a hunt there, and does not
// depend on the device, so it is bounded here, and also on the emulated one.

#include <dlfcn.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <memory>

#include "engine/cuda/runtime/device.h"
#include "properties/case/geometry.h"
#include "properties/generate/mix.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

constexpr std::uint64_t kDeviceSeed = 1;

void need_device() {
  if (cuda::device_count() == 0) SKIP("no CUDA device was found");
}

HuntResult hunt_on_device(Mix mix, std::uint64_t cases) {
  HuntOptions options;
  options.mix = mix;
  options.seed = kDeviceSeed;
  options.cases = cases;
  options.make_subject = [] {
    return std::make_unique<EngineSubject>(EngineParts{}, Device::cuda);
  };
  return hunt(options);
}

struct Ceilings {
  Mix mix;
  double operations;
  double waits;
};

}  // namespace

TEST_CASE("a case asks a device for few operations and waits, on average over a mix", "[device]") {
  need_device();
  const auto ceilings = GENERATE(Ceilings{Mix::wide, 350, 15}, Ceilings{Mix::standard, 120, 8});
  constexpr std::uint64_t kCases = 300;
  const HuntResult result = hunt_on_device(ceilings.mix, kCases);
  REQUIRE(result.cases == kCases);
  CHECK(result.passed());
  double operations = 0;
  for (const auto& [kind, count] : result.device_work) {
    CAPTURE(kind, static_cast<double>(count) / kCases);
    const bool is_operation = kind != "waits" && kind != "slow_convolutions";
    if (is_operation) operations += static_cast<double>(count) / kCases;
  }
  const double waits = static_cast<double>(result.device_work.at("waits")) / kCases;
  CAPTURE(to_string(ceilings.mix), operations, waits);
  CHECK(operations <= ceilings.operations);
  CHECK(waits <= ceilings.waits);
}

TEST_CASE("what a subject counts is what reaches the device", "[device]") {
  need_device();
  using Asked = std::int64_t (*)(int);
  const auto asked = reinterpret_cast<Asked>(dlsym(RTLD_DEFAULT, "rematch_emulator_asked"));
  if (asked == nullptr) SKIP("only the emulated device counts by itself");
  const auto reached = [&] {
    return cuda::Operations{asked(0), asked(1), asked(2), asked(3), asked(4), asked(5), asked(6)};
  };
  EngineSubject subject({}, Device::cuda);
  Workspace workspace;
  GatherOptions options;
  const cuda::Operations before = reached();
  for (std::uint64_t i = 0; i < 100; ++i) {
    options.poison_at_once = i % 10 == 0;
    CAPTURE(i);
    CHECK(judge_case(generate_case(Mix::wide, kDeviceSeed, i), subject, workspace, options).kept());
    const cuda::Operations actual = reached() - before;
    REQUIRE(subject.device_work() == work_of(actual));
  }
}

TEST_CASE("records on a device do not depend on when freed memory is poisoned", "[device]") {
  need_device();
  EngineSubject subject({}, Device::cuda);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Case c = generate_case(Mix::wide, kDeviceSeed, i);
    const Geometry geometry = validate(c);
    RunRequest request;
    request.checkpointed = true;
    Record late;
    Record at_once;
    subject.run(c, geometry, request, late);
    request.poison_at_once = true;
    subject.run(c, geometry, request, at_once);
    CAPTURE(i);
    CHECK(late.hash() == at_once.hash());
  }
}

}  // namespace rematch
