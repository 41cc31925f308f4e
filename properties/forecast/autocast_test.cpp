// Bytes under autocast and with offload; [2, 3] in float32 takes 24 bytes, in bfloat16 12.
#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"

namespace rematch {
namespace {

using namespace testing;

Case autocast(std::vector<LayerSpec> layers) {
  Case c = case_of({2, 3}, std::move(layers));
  c.protocol.input_requires_grad = true;
  c.protocol.autocast = AutocastSpan::forward;
  return c;
}

TEST_CASE("under autocast a linear layer saves its operand and weight in two bytes an element") {
  Case c = autocast({dense(4)});
  // The operand, the weight, and what the loss saves in float32.
  CHECK(forecast_of(c).saved_bytes == 12 + 2 * 12 + 32);
  c.protocol.input_requires_grad = false;
  CHECK(forecast_of(c).saved_bytes == 12 + 32);
}

TEST_CASE("the cast of a tied weight is saved once with a cache, once a use without") {
  Case c = autocast({dense(3), tied(3, 0)});
  CHECK(forecast_of(c).saved_bytes == 12 + 18 + 12 + 24);
  c.protocol.cast_cache = false;
  CHECK(forecast_of(c).saved_bytes == 12 + 18 + 12 + 18 + 24);
  c.protocol.cast_cache = true;
  c.layers[0].frozen = c.layers[1].frozen = true;
  // The cache takes what requires grad; operands are not saved for a frozen weight.
  CHECK(forecast_of(c).saved_bytes == 18 + 18 + 24);
}

TEST_CASE("other layers work in float32 and save what they upcast") {
  const Case c = autocast({dense(3), layer("gelu"), layer("tanh")});
  // linear: operand and weight; gelu: its upcast operand; tanh: its output, which the loss saves
  // too.
  CHECK(forecast_of(c).saved_bytes == 12 + 18 + 24 + 24);
}

TEST_CASE("a bfloat16 value crosses a segment's boundary as it is") {
  Case c = autocast({dense(3), layer("tanh"), dense(3)});
  c.plan.segments = {segment(1, 3, Variant::non_reentrant)};
  CHECK(forecast_of(c).saved_bytes == 12 + 18 + 12 + 24);
  c.plan.segments = {segment(1, 3, Variant::reentrant)};
  CHECK(forecast_of(c).saved_bytes == 12 + 18 + 12 + 24);
}

TEST_CASE("an offloaded graph leaves nothing on the device but what the loss saves") {
  Case c = tanh_chain(3);
  c.plan.offload = true;
  CHECK(forecast_of(c).saved_bytes == 24);
  CHECK(forecast_of(c).offloaded_bytes == 3 * 24);
  CHECK(forecast_of(c).plain_saved_bytes == 3 * 24);
}

TEST_CASE("segment inputs are offloaded, what a policy keeps is not") {
  Case c = tanh_chain(4);
  c.plan.offload = true;
  // The first layer saves its output, which is the segment's input.
  for (const Variant variant : {Variant::reentrant, Variant::non_reentrant}) {
    c.plan.segments = {segment(1, 4, variant)};
    CHECK(forecast_of(c).offloaded_bytes == 24);
  }
  c.plan.segments[0].choice.keep = {{"tanh", 0}};
  CHECK(forecast_of(c).offloaded_bytes == 24);
  CHECK(forecast_of(c).saved_bytes == 24 + 24);
}

TEST_CASE("a tensor that two layers save is copied to the host once") {
  Case c = case_of({2, 3}, {layer("tanh"), dense(3)});
  c.protocol.input_requires_grad = true;
  CHECK(forecast_of(c).saved_bytes == 24 + 24);
  c.plan.offload = true;
  CHECK(forecast_of(c).offloaded_bytes == 24);
}

}  // namespace
}  // namespace rematch
