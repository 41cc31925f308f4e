// Worked by hand: backwards to some tensors, and from several losses.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "properties/forecast/testing/small_cases.h"
#include "properties/layers/custom_layer.h"

namespace rematch {
namespace {

using namespace testing;

std::int64_t count(const Forecast& f, Event event) {
  return std::count_if(f.live.begin(), f.live.end(),
                       [&](const LiveReading& r) { return r.event == event; });
}

/// split -> tanh on the first half; the second is the other output.
Case two_outputs() {
  LayerSpec split = layer("split");
  split.features = 1;
  Case c = case_of({2, 2}, {layer("tanh"), split, layer("tanh")});
  c.protocol.input_requires_grad = true;
  return c;
}

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

TEST_CASE("a partial backward recomputes what leads to its tensors, and gives nothing to others") {
  // linear 0, in a segment with a tanh, then linear 2: its weight and the first one's bias want
  // no gradient of the first layer's weight.
  Case c = case_of({2, 3}, {dense(4), layer("tanh"), dense(5)});
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  c.protocol.partial = true;
  const Forecast f = forecast_of(c);
  // weight, bias, weight, bias: both parts have a parameter of either layer.
  CHECK(count(f, Event::backward) == 2);
  CHECK(count(f, Event::gradient) == 4);
  CHECK(f.executions == std::vector{3, 3, 1});
  CHECK(f.hooks == std::vector{1, 1, 1, 1});
  c.layers[0].frozen = true;
  const Forecast behind = forecast_of(c);
  CHECK(count(behind, Event::gradient) == 2);
  CHECK(behind.executions == std::vector{1, 1, 1});
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

TEST_CASE("every output that requires grad is a root if it has a loss") {
  Case c = two_outputs();
  CHECK(roots_of(c, {true, true}) == std::vector{0});
  c.protocol.auxiliary_losses = true;
  CHECK(roots_of(c, {true, true}) == std::vector{0, 1});
  CHECK(roots_of(c, {true, false}) == std::vector{0});
  CHECK(roots_of(c, {false, true}) == std::vector{1});
}

TEST_CASE("a further loss has a backward of its own, through what its output depends on") {
  Case c = two_outputs();
  c.protocol.auxiliary_losses = true;
  c.plan.segments = {segment(0, 1, Variant::non_reentrant), segment(2, 3, Variant::non_reentrant)};
  const Forecast f = forecast_of(c);
  CHECK(count(f, Event::backward) == 2);
  // The second backward does not reach the second segment.
  CHECK(f.executions == std::vector{3, 1, 2});
  // loss, layers 2, 1 and 0; loss, layers 1 and 0.
  CHECK(count(f, Event::node) == 7);
  CHECK(count(f, Event::gradient) == 2);
}

TEST_CASE("a scaled loss is one node more") {
  Case c = tanh_chain(1);
  const Forecast plain = forecast_of(c);
  c.protocol.loss_scale = 2;
  CHECK(count(forecast_of(c), Event::node) == count(plain, Event::node) + 1);
}

TEST_CASE("while a gradient is measured for clipping, one number more is live") {
  // The step's peak begins with the input, which is gone by then: a token of 4 bytes, where the
  // number has 8.
  LayerSpec embedding = layer("embedding");
  embedding.vocabulary = 3;
  embedding.features = 2;
  Case c = case_of({1, 1}, {embedding});
  c.dtype = DType::float64;
  const std::int64_t before = forecast_of(c).live.back().peak;
  c.protocol.clip = 1;
  CHECK(forecast_of(c).live.back().peak == before + 4);
}

}  // namespace
}  // namespace rematch
