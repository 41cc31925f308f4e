// Worked by hand: backwards to some tensors.
#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"
#include "properties/layers/custom_layer.h"

namespace rematch {
namespace {

using namespace testing;

TEST_CASE(
    "a partial backward is one for every other tensor that requires grad, and one for the rest") {
  Case c = case_of({2, 3}, {dense(4), dense(5)});
  c.protocol.partial = true;
  const auto calls = [&] { return backward_calls(c, validate(c)); };
  CHECK(calls() == 2);
  c.protocol.backwards = 3;
  CHECK(calls() == 6);
  for (LayerSpec& l : c.layers) l.frozen = true;
  CHECK(calls() == 3);
  c.protocol.input_requires_grad = true;
  CHECK(calls() == 3);
  c.layers[1].frozen = false;
  CHECK(calls() == 6);
  c.protocol.partial = false;
  CHECK(calls() == 3);
}

TEST_CASE("how often a module runs is not known where a backward is for a part of its tensors") {
  LayerSpec module = layer("custom");
  module.layer = declared("embedding: N C -> N C; parameters");
  Case c = case_of({2, 3}, {dense(4), module});
  c.plan.segments = {segment(1, 2, Variant::non_reentrant)};
  CHECK(forecast_of(c).saves_known);
  // Its own part is for the weight and the module, the other one for the bias alone.
  c.protocol.partial = true;
  CHECK_FALSE(forecast_of(c).saves_known);
  c.layers[0].frozen = true;
  CHECK(forecast_of(c).saves_known);
}

}  // namespace
}  // namespace rematch
