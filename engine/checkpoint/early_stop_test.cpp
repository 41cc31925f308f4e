#include "engine/checkpoint/early_stop.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using namespace testing;

TEST_CASE_METHOD(LedgerScope, "inside a reentrant checkpoint the scope around backward counts") {
  // The inside records in the recomputation alone, see EarlyStop.
  const bool around_forward = GENERATE(false, true);
  const bool around_backward = GENERATE(false, true);
  const int levels = GENERATE(1, 2, 3);
  int tails = 0;
  Function f = [&](const Tensors& in) -> Tensors {
    const Tensor y = tanh(in[0]);
    ++tails;
    return {y};
  };
  f = [inner = f](const Tensors& in) { return checkpoint(inner, in); };
  for (int i = 0; i < levels; ++i) {
    f = [inner = f](const Tensors& in) { return checkpoint(inner, in, {.reentrant = true}); };
  }
  Tensor loss;
  {
    const EarlyStop scope(around_forward ? std::optional(false) : std::nullopt);
    loss = f({variable({0.5}, {1})})[0];
  }
  CHECK(tails == 1);
  const EarlyStop scope(around_backward ? std::optional(false) : std::nullopt);
  backward(loss);
  // Each reentrant level runs the inside once more; its own recomputation comes to the tail if it
  // does not stop early.
  CHECK(tails == 1 + levels + (around_backward ? 1 : 0));
}

TEST_CASE_METHOD(LedgerScope, "inside a non-reentrant checkpoint the scope around forward counts") {
  const bool around_forward = GENERATE(false, true);
  const bool around_backward = GENERATE(false, true);
  int tails = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor y = tanh(in[0]);
    ++tails;
    return {y};
  };
  const Function g = [&](const Tensors& in) -> Tensors {
    const Tensors h = checkpoint(f, {tanh(in[0])});
    return {tanh(h[0])};
  };
  Tensor loss;
  {
    const EarlyStop scope(around_forward ? std::optional(false) : std::nullopt);
    loss = checkpoint(g, {variable({0.5}, {1})})[0];
  }
  const EarlyStop scope(around_backward ? std::optional(false) : std::nullopt);
  backward(loss);
  // The forward, the recomputation of what is around, and that of the inside if it does not stop
  // early.
  CHECK(tails == 2 + (around_forward ? 1 : 0));
}

TEST_CASE_METHOD(LedgerScope, "what a layer does beside its ops ends with the last save, or it") {
  int tail = 0;
  const bool works_on = GENERATE(false, true);
  const Function layer = [&](const Tensors& in) -> Tensors {
    Tensor y = tanh(in[0]);
    if (works_on) y = add(y, y);
    ++tail;
    return {y};
  };
  const Tensor loss = checkpoint_sequential(std::array{layer}, 1, {variable({0.5}, {1})},
                                            LastSegment::checkpointed)[0];
  backward(loss);
  CHECK(tail == (works_on ? 1 : 2));
}

TEST_CASE_METHOD(LedgerScope, "what an unfinished forward saved is recomputed up to there") {
  Tensor kept;
  const Function layers[] = {[](const Tensors& in) -> Tensors { return {tanh(in[0])}; },
                             [&](const Tensors& in) -> Tensors {
                               kept = tanh(in[0]);
                               throw std::domain_error("mine");
                             }};
  const Tensor x = variable({0.5}, {1});
  CHECK_THROWS_AS(checkpoint_sequential(layers, 1, {x}, LastSegment::checkpointed),
                  std::domain_error);
  const Tensor loss = std::exchange(kept, Tensor());
  backward(loss);
  CHECK(x.grad().defined());
  CHECK_FALSE(kept.defined());
}

TEST_CASE_METHOD(LedgerScope,
                 "a recomputation that is over takes nothing more from the op that ends it") {
  Tensor w = variable({2}, {1});
  w.set_requires_grad(false);
  const Tensor x = variable({3}, {1});
  const Function layer = [&](const Tensors& in) -> Tensors { return {mul(w, in[0])}; };
  const Tensor loss =
      checkpoint_sequential(std::array{layer}, 1, {x}, LastSegment::checkpointed)[0];
  // From here on the op saves its other operand, too.
  w.set_requires_grad(true);
  backward(loss);
  CHECK(same_bits(x.grad(), tensor({2}, {1})));
}

TEST_CASE_METHOD(LedgerScope, "a draw that a recomputation does not come to moves no stream") {
  bool drops = false;
  const Function layer = [&](const Tensors& in) -> Tensors {
    const Tensor y = tanh(in[0]);
    return {drops ? dropout(y, 0.5) : y};
  };
  CheckpointOptions options;
  options.preserve_rng = false;
  const Tensor loss = checkpoint_sequential(std::array{layer}, 1, {variable({0.5}, {1})},
                                            LastSegment::checkpointed, options)[0];
  drops = true;
  const auto before = ambient().streams.states();
  backward(loss);
  CHECK(ambient().streams.states() == before);
}

TEST_CASE_METHOD(LedgerScope, "a recomputation runs no op after the one that saves last") {
  // Work of a layer after its last save, in the forward or in the recomputation.
  enum class Tail { nothing, op, clone };
  const Tail forward = GENERATE(Tail::nothing, Tail::op, Tail::clone);
  const Tail recomputation = GENERATE(Tail::op, Tail::clone);
  int runs = 0;
  int tails = 0;
  const Function layer = [&](const Tensors& in) -> Tensors {
    const Tail tail = runs++ == 0 ? forward : recomputation;
    const Tensor y = tanh(in[0]);
    const Tensor z = tail == Tail::nothing ? y : tail == Tail::op ? add(y, y) : y.clone();
    if (runs > 1) ++tails;
    return {tail == Tail::op ? z : y};
  };
  const Tensor x = variable({0.5}, {1});
  const Tensor loss =
      checkpoint_sequential(std::array{layer}, 1, {x}, LastSegment::checkpointed)[0];
  backward(loss);
  CHECK(runs == 2);
  CHECK(tails == 0);
  CHECK(ledger().live(Tag::saved) == 0);
}

}  // namespace rematch
