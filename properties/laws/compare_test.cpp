#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>

#include "properties/laws/testing/synthetic.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using namespace testing;

/// Two records whose output element 1 holds `a` in the plain and `b` in the checkpointed run.
std::optional<Violation> compare(float a, float b) {
  Synthetic s(synthetic_case());
  put(s.plain, observation(s.plain, Quantity::output), 1, a);
  put(s.checkpointed, observation(s.checkpointed, Quantity::output), 1, b);
  return s.judge("outputs");
}

TEST_CASE("a violation names place, element, values and bits") {
  Synthetic s(synthetic_case());
  const Observation& o = observation(s.checkpointed, Quantity::parameter_gradient, 2);
  put(s.plain, observation(s.plain, Quantity::parameter_gradient, 2), 1, 1.0F);
  put(s.checkpointed, o, 1, 1.5F);
  put(s.checkpointed, o, 2, -7.0F);
  const std::optional<Violation> violation = s.judge("parameter-gradients");
  REQUIRE(violation);
  CHECK(violation->place ==
        "step 0, gradient of parameter 2 (layer 2 batch_norm weight), element 1 (first of 2 that "
        "differ, of 3)");
  CHECK(violation->expected == "1 (0x3f800000)");
  CHECK(violation->got == "1.5 (0x3fc00000)");
}

TEST_CASE("minus zero is not zero") {
  CHECK_FALSE(compare(0.0F, 0.0F));
  const std::optional<Violation> violation = compare(0.0F, -0.0F);
  REQUIRE(violation);
  CHECK(violation->expected == "0 (0x00000000)");
  CHECK(violation->got == "-0 (0x80000000)");
}

TEST_CASE("a NaN equals itself and no other NaN") {
  const auto nan = [](std::uint32_t payload) {
    return std::bit_cast<float>(0x7fc00000U | payload);
  };
  CHECK_FALSE(compare(nan(1), nan(1)));
  CHECK(compare(nan(1), nan(2)));
}

TEST_CASE("the order of a record's entries does not matter") {
  Synthetic s(synthetic_case());
  std::reverse(s.checkpointed.observations.begin(), s.checkpointed.observations.end());
  std::reverse(s.checkpointed.executions.begin(), s.checkpointed.executions.end());
  std::reverse(s.checkpointed.streams.begin(), s.checkpointed.streams.end());
  std::reverse(s.checkpointed.bytes.begin(), s.checkpointed.bytes.end());
  std::reverse(s.checkpointed.hooks.begin(), s.checkpointed.hooks.end());
  std::reverse(s.checkpointed.grad_flags.begin(), s.checkpointed.grad_flags.end());
  std::reverse(s.checkpointed.draws.begin(), s.checkpointed.draws.end());
  for (const Law& law : laws()) {
    INFO(law.name);
    CHECK_FALSE(s.judge(law.name));
  }
}

TEST_CASE("values that the forecast calls inexact are passed over, those before them are not") {
  Synthetic s(synthetic_case());
  s.forecast.exact_until_step = 0;
  s.forecast.exact_parameters[0] = false;
  const auto change = [&](Quantity quantity, int step, int index) {
    for (Observation& o : s.checkpointed.observations) {
      if (o.quantity == quantity && o.step == step && o.index == index) {
        s.checkpointed.data[o.offset] ^= std::byte{1};
      }
    }
  };
  change(Quantity::parameter_gradient, 0, 0);
  change(Quantity::parameter, 0, 0);
  change(Quantity::output, 1, 0);
  change(Quantity::buffer, 1, 0);
  change(Quantity::reevaluation, 1, 0);
  for (const Law& law : laws()) {
    INFO(law.name);
    CHECK_FALSE(s.judge(law.name));
  }
  change(Quantity::parameter, 0, 1);
  CHECK(s.judge("parameters-after-step"));
  s.c.protocol.clip = 1;
  CHECK_FALSE(s.judge("parameters-after-step"));
  change(Quantity::parameter_gradient, 0, 1);
  CHECK(s.judge("parameter-gradients"));
  change(Quantity::output, 0, 0);
  CHECK(s.judge("outputs"));
}

TEST_CASE("after recomputations with fresh draws only the first forward is compared") {
  Synthetic s(synthetic_case());
  s.forecast.values_comparable = false;
  for (Observation& o : s.checkpointed.observations) {
    if (o.step > 0 || o.microbatch > 0) s.checkpointed.data[o.offset] ^= std::byte{1};
  }
  for (Draw& d : s.checkpointed.draws) {
    if (d.execution > 0 || d.step > 0 || d.microbatch > 0) d.hash ^= 1;
  }
  for (const Law& law : laws()) {
    INFO(law.name);
    CHECK_FALSE(s.judge(law.name));
  }
  s.checkpointed.draws[0].hash ^= 1;
  CHECK(s.judge("dropout-masks"));
  s.checkpointed.data[observation(s.checkpointed, Quantity::output).offset] ^= std::byte{1};
  CHECK(s.judge("outputs"));
}

TEST_CASE("a backward that retains its graph leaves what the forward left, byte for byte") {
  Case c = synthetic_case();
  c.protocol.backwards = 3;
  Synthetic s(c);
  for (const Law& law : laws()) {
    INFO(law.name);
    CHECK_FALSE(s.judge(law.name));
  }
  const auto retained = std::find_if(s.checkpointed.bytes.begin(), s.checkpointed.bytes.end(),
                                     [](const ByteReading& r) { return r.retained; });
  ++retained->saved;
  CHECK(s.judge("bytes-after-backward"));
  s.checkpointed.bytes.erase(retained);
  CHECK(s.judge("bytes-after-backward"));
}

TEST_CASE("a foreseen checkpoint error is no violation, any other error is") {
  Synthetic s(synthetic_case());
  s.forecast.may_fail = true;
  s.checkpointed.error = RecordedError{"checkpoint_error", "the bits changed"};
  CHECK_FALSE(s.judge("errors"));
  s.checkpointed.error->kind = "out_of_memory";
  CHECK(s.judge("errors"));
}

}  // namespace
}  // namespace rematch
