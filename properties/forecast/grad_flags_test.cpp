#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"

namespace rematch {
namespace {

using namespace testing;
using Flags = std::vector<bool>;

/// requires_grad of output 0 of every layer.
Flags main_flags(const Forecast& f) {
  Flags flags;
  for (const auto& outputs : f.grad_flags) flags.push_back(outputs[0]);
  return flags;
}

TEST_CASE("in a plain run whatever follows a trained layer requires grad") {
  const Case c = case_of({2, 3}, {layer("tanh"), dense(3), layer("tanh")});
  const Forecast f = forecast_of(c);
  CHECK(main_flags(f) == Flags{false, true, true});
  CHECK(f.output_flags == Flags{true});
  CHECK(f.frozen_layers.empty());
}

TEST_CASE(
    "a reentrant first block on an input without grad is frozen, a non-reentrant one is not") {
  Case c = case_of({2, 3}, {dense(3), layer("tanh"), dense(3)});
  c.plan.segments = {segment(0, 2, Variant::reentrant)};
  Forecast f = forecast_of(c);
  CHECK(main_flags(f) == Flags{false, false, true});
  CHECK(f.frozen_layers == std::vector<int>{0});
  CHECK(f.hooks == std::vector<int>{0, 0, 1, 1});

  c.protocol.input_requires_grad = true;
  f = forecast_of(c);
  CHECK(main_flags(f) == Flags{false, false, true});
  CHECK(f.frozen_layers.empty());
  CHECK(f.hooks == std::vector<int>{1, 1, 1, 1});

  c.protocol.input_requires_grad = false;
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  f = forecast_of(c);
  CHECK(main_flags(f) == Flags{true, true, true});
  CHECK(f.frozen_layers.empty());
}

TEST_CASE("a frozen first block stays frozen inside a non-reentrant segment") {
  Case c = case_of({2, 3}, {dense(3), layer("tanh"), dense(3)});
  c.plan.segments = {segment(0, 3, Variant::non_reentrant, {segment(0, 1, Variant::reentrant)})};
  const Forecast f = forecast_of(c);
  CHECK(main_flags(f) == Flags{false, false, true});
  CHECK(f.frozen_layers == std::vector<int>{0});
}

TEST_CASE("a model that lies in frozen blocks altogether has nothing to differentiate") {
  Case c = case_of({2, 3}, {dense(3), dense(3)});
  c.plan.segments = {segment(0, 2, Variant::reentrant)};
  const Forecast f = forecast_of(c);
  CHECK(f.output_flags == Flags{false});
  CHECK(f.executions == std::vector<int>{1, 1});
  CHECK(f.saved_bytes == 0);
}

TEST_CASE("all outputs of a reentrant segment require grad, even one that merely passes through") {
  // The unused second output of the split is a model output of its own.
  Case c = case_of({2, 4}, {layer("split"), dense(3), dense(3)});
  c.layers[0].features = 2;
  CHECK(forecast_of(c).output_flags == Flags{true, false});
  c.plan.segments = {segment(2, 3, Variant::non_reentrant)};
  CHECK(forecast_of(c).output_flags == Flags{true, false});
  c.plan.segments = {segment(2, 3, Variant::reentrant)};
  CHECK(forecast_of(c).output_flags == Flags{true, true});
}

TEST_CASE("inside a reentrant forward only identities keep the flag of their operand") {
  Case c = case_of({2, 3}, {dense(3), layer("duplicate"), layer("tanh")});
  c.plan.segments = {segment(1, 3, Variant::reentrant)};
  const Forecast f = forecast_of(c);
  CHECK(f.grad_flags[1] == Flags{true, true});
  CHECK(f.grad_flags[2] == Flags{false});
  CHECK(f.output_flags == Flags{true, true});
}

TEST_CASE("frozen parameters take no part") {
  Case c = case_of({2, 3}, {dense(3), dense(3)});
  c.layers[0].frozen = true;
  const Forecast f = forecast_of(c);
  CHECK(main_flags(f) == Flags{false, true});
  CHECK(f.hooks == std::vector<int>{0, 0, 1, 1});
  CHECK(f.frozen_layers.empty());
}

}  // namespace
}  // namespace rematch
