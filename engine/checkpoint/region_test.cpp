// State that a recomputation does not put back: what a function reads besides its inputs must be
// what it was in the forward, or the recomputation says which tensor or which op differs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/sequence.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using Catch::Matchers::ContainsSubstring;
using namespace testing;

TEST_CASE_METHOD(LedgerScope, "more saved tensors from the same ops are refused") {
  CheckpointOptions options;
  options.early_stop = false;
  Tensor w = tensor({1, 2, 3, 4}, {2, 2});
  const Function f = [&](const Tensors& in) -> Tensors { return {mul(in[0], w)}; };
  const Tensor loss = sum(checkpoint(f, {x22()}, options)[0]);
  w.set_requires_grad(true);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("the recomputation saves more tensors"));
}

TEST_CASE_METHOD(LedgerScope, "fewer saved tensors from the same ops are refused") {
  Tensor w = variable({1, 2, 3, 4}, {2, 2});
  const Function f = [&](const Tensors& in) -> Tensors { return {mul(in[0], w)}; };
  const Tensor loss = sum(checkpoint(f, {x22()})[0]);
  w.set_requires_grad(false);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("saved 1 tensors, the forward 2"));
}

TEST_CASE_METHOD(LedgerScope, "values from outside of ops are seen by the values check alone") {
  CheckpointOptions options;
  options.determinism = GENERATE(DeterminismCheck::metadata, DeterminismCheck::values);
  int calls = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    return {tanh(mul(in[0], Tensor::full({2, 2}, DType::float64, ++calls)))};
  };
  const Tensor loss = sum(checkpoint(f, {x22()}, options)[0]);
  if (options.determinism == DeterminismCheck::metadata) {
    CHECK_NOTHROW(backward(loss));
  } else {
    CHECK_THROWS_WITH(backward(loss), ContainsSubstring("the bits of saved tensor"));
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "what leads to a read behind the last saved tensor does not run again") {
  const bool reads = GENERATE(false, true);
  int ends = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor y = tanh(in[0]);
    ++ends;
    if (reads) static_cast<void>(y.clone());
    return {y};
  };
  const Sequence layers(std::span(&f, 1));
  backward(sum(checkpoint(layers, {x22()}, {.determinism = DeterminismCheck::metadata})[0]));
  // A layer that does nothing there runs to its end: that takes no exception.
  CHECK(ends == (reads ? 1 : 2));
}

TEST_CASE_METHOD(LedgerScope, "constants made again or kept from the forward are no difference") {
  const bool reentrant = GENERATE(false, true);
  Tensor kept;
  const Function f = [&](const Tensors& in) -> Tensors {
    if (!kept.defined()) kept = Tensor::full({2, 2}, DType::float64, 3);
    return {tanh(mul(mul(in[0], kept), Tensor::full({2, 2}, DType::float64, 2)))};
  };
  const Tensor x = x22();
  backward(sum(checkpoint(f, {x}, {.reentrant = reentrant})[0]));
  const Tensor loss = sum(checkpoint(f, {x}, {.reentrant = reentrant})[0]);
  scale_(kept, 2);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("was changed in place since the forward"));
}

TEST_CASE_METHOD(LedgerScope, "a constant that a forward makes and keeps is held to its version") {
  const bool reentrant = GENERATE(false, true);
  const bool cloned = GENERATE(false, true);
  Tensor kept;
  const Function f = [&](const Tensors& in) -> Tensors {
    if (!kept.defined()) kept = Tensor::full({2, 2}, DType::float64, 3);
    return {tanh(mul(in[0], cloned ? kept.clone() : kept))};
  };
  const Tensor loss = sum(checkpoint(f, {x22()}, {.reentrant = reentrant})[0]);
  scale_(kept, 2);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("changed in place since the forward"));
}

TEST_CASE_METHOD(LedgerScope, "what a function clones is compared as what it reads") {
  const bool reentrant = GENERATE(false, true);
  Tensor v = tensor({1, 2, 3, 4}, {2, 2}).set_name("v");
  Tensor w = tensor({5, 6, 7, 8}, {2, 2}).set_name("w");
  const Function f = [&](const Tensors& in) -> Tensors {
    return {tanh(mul(mul(in[0], v.clone()), w.clone()))};
  };
  // Also where the copies are made in a region inside, be it one that looks at nothing.
  const int nested = GENERATE(0, 1, 2);
  CheckpointOptions inner;
  if (nested == 2) inner.determinism = DeterminismCheck::none;
  const Function g = [&](const Tensors& in) {
    return nested > 0 ? checkpoint(f, in, inner) : f(in);
  };
  CheckpointOptions options{.reentrant = reentrant};
  options.early_stop = false;
  const auto loss = [&] { return sum(checkpoint(g, {x22()}, options)[0]); };
  const Tensor first = loss();
  scale_(w, 2);
  CHECK_THROWS_WITH(backward(first),
                    ContainsSubstring("\"w\" (float64 [2, 2]) was changed in place"));
  const Tensor second = loss();
  scale_(v, 2);
  CHECK_THROWS_WITH(backward(second),
                    ContainsSubstring("\"v\" (float64 [2, 2]) was changed in place"));
  CHECK_NOTHROW(backward(loss()));
}

}  // namespace rematch
