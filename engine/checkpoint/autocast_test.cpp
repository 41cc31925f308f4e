// What changed between the forward and a recomputation under autocast is named, not its copy.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using Catch::Matchers::ContainsSubstring;
using namespace testing;

TEST_CASE_METHOD(LedgerScope, "a weight changed since the forward is named, not its copy") {
  const bool reentrant = GENERATE(false, true);
  const bool inside = GENERATE(false, true);
  Tensor w = leaf({4, 4}, 2);
  w.set_name("fc.weight");
  const Function f = [&](const Tensors& in) -> Tensors { return {tanh(linear(in[0], w))}; };
  std::optional<AutocastScope> scope(std::in_place);
  const Tensor loss = sum(checkpoint(f, {leaf({3, 4}, 1)}, {.reentrant = reentrant})[0]);
  if (!inside) scope.reset();
  {
    const GradMode off(false);
    scale_(w, 2);
  }
  CHECK_THROWS_WITH(backward(loss),
                    ContainsSubstring("\"fc.weight\" (float32 [4, 4]), operand 1 of linear") &&
                        ContainsSubstring("version 0 expected, got 1"));
}

TEST_CASE_METHOD(LedgerScope, "an input changed since the forward is named, though it was cast") {
  const bool reentrant = GENERATE(false, true);
  const Tensor w = leaf({4, 4}, 2);
  Tensor captured = values_off_zero({3, 4}, 3, DType::float32);
  const Function f = [&](const Tensors& in) -> Tensors {
    return {add(in[0], linear(captured, w))};
  };
  CheckpointOptions options{.reentrant = reentrant};
  options.early_stop = false;
  const AutocastScope scope;
  const Tensor loss = sum(checkpoint(f, {leaf({3, 4}, 1)}, options)[0]);
  scale_(captured, 2);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("operand 0 of linear (float32 [3, 4])"));
}

}  // namespace rematch
