// Worked by hand: models with further inputs.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "properties/case/features.h"
#include "properties/forecast/testing/small_cases.h"
#include "properties/generate/edit.h"

namespace rematch {
namespace {

using namespace testing;

TEST_CASE("each further input has a layer that reads it") {
  Case c = case_of({2, 3}, {dense(3), joined("add", {-1, 1})});
  c.further_inputs = 2;
  CHECK_THROWS_AS(validate(c), std::invalid_argument);
  c.layers.push_back(joined("mul", {-1, 2}));
  CHECK_NOTHROW(validate(c));
  c.protocol.further_inputs_with_grad = 3;
  CHECK_THROWS_AS(validate(c), std::invalid_argument);
}

TEST_CASE("inputs that no layer reads any more are dropped, and the others keep their grad") {
  Case c = case_of({2, 3}, {joined("add", {-1, 2}), joined("mul", {-1, 3})});
  c.further_inputs = 3;
  c.protocol.further_inputs_with_grad = 2;
  drop_unread_inputs(c);
  CHECK(c.further_inputs == 2);
  CHECK(c.protocol.further_inputs_with_grad == 1);
  CHECK(c.layers[0].from == std::vector<ValueRef>{{-1, 1}});
  CHECK(c.layers[1].from == std::vector<ValueRef>{{-1, 2}});
  CHECK_NOTHROW(validate(c));
}

TEST_CASE("a partial backward serves further inputs in turn") {
  Case c = case_of({2, 3}, {layer("tanh"), joined("mul", {-1, 1})});
  c.further_inputs = 1;
  c.protocol.further_inputs_with_grad = 1;
  c.protocol.partial = true;
  CHECK(backward_calls(c, validate(c)) == 1);
  c.protocol.input_requires_grad = true;
  CHECK(backward_calls(c, validate(c)) == 2);
}

}  // namespace
}  // namespace rematch
