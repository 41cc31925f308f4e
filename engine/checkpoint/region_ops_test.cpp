// The ops of a recomputation are those of its forward: as many, in the same dtypes, with as many
// outputs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using Catch::Matchers::ContainsSubstring;
using namespace testing;

TEST_CASE_METHOD(LedgerScope,
                 "ops that a recomputation adds or leaves out at its end are noticed, if any are") {
  CheckpointOptions options{.reentrant = GENERATE(false, true)};
  options.early_stop = false;
  const bool checked = GENERATE(false, true);
  options.determinism = checked ? DeterminismCheck::metadata : DeterminismCheck::none;
  const bool policy = GENERATE(false, true);
  if (policy && options.reentrant) return;
  if (policy) options.policy = [](const OpInstance&) { return Keep::must_recompute; };
  const bool adds = GENERATE(false, true);
  bool more = !adds;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor y = tanh(in[0]);
    // Saves nothing.
    if (more) scale(y, 2);
    return {y};
  };
  const Tensor loss = sum(checkpoint(f, {x22()}, options)[0]);
  more = adds;
  if (checked) {
    CHECK_THROWS_WITH(
        backward(loss),
        ContainsSubstring(adds ? "runs more ops than the forward: scale comes after the last of 1"
                               : "the recomputation ran 1 ops, the forward 2: scale is missing"));
  } else {
    CHECK_NOTHROW(backward(loss));
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "an op in another dtype is noticed, even where its numbers are the same") {
  const bool reentrant = GENERATE(false, true);
  DType dtype = DType::float32;
  const Function f = [&](const Tensors& in) -> Tensors {
    const double six = scale(Tensor::full({2, 2}, dtype, 3), 2).at(0);
    return {tanh(scale(in[0], six))};
  };
  const Tensor loss = sum(checkpoint(f, {x22()}, {.reentrant = reentrant})[0]);
  dtype = DType::float64;
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("scale on other shapes or dtypes"));
}

TEST_CASE_METHOD(LedgerScope,
                 "a reentrant recomputation that returns more or fewer outputs is refused") {
  CheckpointOptions options{.reentrant = true};
  options.determinism = GENERATE(DeterminismCheck::none, DeterminismCheck::metadata);
  const bool more = GENERATE(false, true);
  bool two = !more;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor y = tanh(in[0]);
    if (two) return {y, y};
    return {y};
  };
  const Tensor loss = sum(checkpoint(f, {x22()}, options)[0]);
  two = more;
  CHECK_THROWS_WITH(backward(loss),
                    more ? "[checkpoint] the recomputation returned 2 outputs, the forward 1"
                         : "[checkpoint] the recomputation returned 1 outputs, the forward 2");
}

TEST_CASE_METHOD(LedgerScope, "without a check only what is read has to fit") {
  CheckpointOptions options;
  options.determinism = GENERATE(DeterminismCheck::none, DeterminismCheck::metadata);
  bool smaller = false;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor unread = tanh(smaller ? sum(in[0]) : scale(in[0], 1));
    return {tanh(in[0]), unread};
  };
  const Tensor x = x22();
  const Tensors outputs = checkpoint(f, {x}, options);
  smaller = true;
  if (options.determinism == DeterminismCheck::none) {
    backward(sum(outputs[0]));
    const Tensor plain = x22();
    backward(sum(tanh(plain)));
    CHECK(testing::same_bits(x.grad(), plain.grad()));
    CHECK_THROWS_AS(backward(sum(outputs[1])), CheckpointError);
  } else {
    CHECK_THROWS_AS(backward(sum(outputs[0])), CheckpointError);
  }
}

TEST_CASE_METHOD(LedgerScope, "a captured tensor and one made again do not stand for each other") {
  const bool reentrant = GENERATE(false, true);
  const bool first = GENERATE(false, true);
  bool takes_captured = first;
  const Tensor captured = Tensor::full({2, 2}, DType::float64, 3);
  const Function f = [&](const Tensors& in) -> Tensors {
    return {tanh(mul(in[0], takes_captured ? captured : Tensor::full({2, 2}, DType::float64, 3)))};
  };
  const Tensor loss = sum(checkpoint(f, {x22()}, {.reentrant = reentrant})[0]);
  takes_captured = !first;
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("operand 1 of mul (float64 [2, 2]) is "
                                                      "another tensor"));
}

}  // namespace rematch
