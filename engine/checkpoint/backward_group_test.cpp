#include "engine/checkpoint/backward_group.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::same_bits;
using testing::variable;

/// A checkpoint with two outputs and a count of its runs.
struct Pair {
  Tensor x = variable({0.5, -1}, {2});
  int runs = 0;
  Tensors outputs = checkpoint(
      [this](const Tensors& in) -> Tensors {
        ++runs;
        return {tanh(in[0]), sigmoid(in[0])};
      },
      {x});
};

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "backwards of one group share a replay and its gradients stay right") {
  Pair alone;
  backward(sum(alone.outputs[0]));
  backward(sum(alone.outputs[1]));
  CHECK(alone.runs == 3);

  Pair together;
  const BackwardGroup group;
  backward(sum(together.outputs[0]));
  backward(sum(together.outputs[1]));
  CHECK(together.runs == 2);
  CHECK(same_bits(together.x.grad(), alone.x.grad()));
}

TEST_CASE_METHOD(LedgerScope, "what a group recomputed and nobody used is freed when it ends") {
  Pair pair;
  const std::int64_t before = ledger().live(Tag::saved);
  {
    const BackwardGroup group;
    backward(sum(pair.outputs[0]), {.retain_graph = true});
    CHECK(ledger().live(Tag::saved) == before + 2 * 8);
  }
  CHECK(ledger().live(Tag::saved) == before);
}

TEST_CASE_METHOD(LedgerScope, "a group asks for each saved tensor once, and is over when it ends") {
  Pair pair;
  const Tensor loss = sum(pair.outputs[0]);
  {
    const BackwardGroup group;
    backward(loss, {.retain_graph = true});
    CHECK_THROWS_WITH(backward(loss, {.retain_graph = true}),
                      ContainsSubstring("unpacked twice in one group of backwards"));
    CHECK(pair.runs == 2);
  }
  CHECK_NOTHROW(backward(loss));
  CHECK(pair.runs == 3);
}

TEST_CASE_METHOD(LedgerScope, "groups do not nest, and a refused one leaves the outer one alone") {
  const BackwardGroup outer;
  CHECK_THROWS_WITH([] { const BackwardGroup inner; }(),
                    ContainsSubstring("cannot begin inside another"));
  CHECK(BackwardGroup::current() == &outer);
}

TEST_CASE_METHOD(LedgerScope, "a replay that fails in a group can be tried again in it") {
  int runs = 0;
  const Tensor x = variable({0.5}, {1});
  const Tensor loss = checkpoint(
      [&](const Tensors& in) -> Tensors {
        if (++runs == 2) throw std::domain_error("mine");
        return {tanh(in[0])};
      },
      {x})[0];
  const BackwardGroup group;
  CHECK_THROWS_AS(backward(loss, {.retain_graph = true}), std::domain_error);
  CHECK_NOTHROW(backward(loss));
  CHECK(runs == 3);
}

TEST_CASE_METHOD(LedgerScope, "a function that differentiates inside may run in a group") {
  const Tensor x = variable({0.5, 2}, {2});
  const Function f = [](const Tensors& in) -> Tensors {
    const Tensors inner{sum(tanh(in[0]))};
    return {mul(tanh(in[0]), grad(inner, in)[0])};
  };
  const Tensor plain = sum(f({x})[0]);
  backward(plain);
  const Tensor expected = x.grad().clone();
  Tensor(x).set_grad({});
  const BackwardGroup group;
  backward(sum(checkpoint(f, {x})[0]));
  CHECK(same_bits(x.grad(), expected));
}

TEST_CASE_METHOD(LedgerScope, "what a group recomputed goes with the part of the graph it is for") {
  const Tensor x = variable({0.5, -1}, {2});
  // The replay's results live on: they are not the graph's any more, and count as anyone's.
  Tensor kept;
  Tensors outputs = checkpoint(
      [&](const Tensors& in) -> Tensors {
        const Tensor second = tanh(sigmoid(in[0]));
        kept = second.detach();
        return {tanh(in[0]), second};
      },
      {x});
  kept = Tensor();
  const std::int64_t before = ledger().live();
  {
    const BackwardGroup group;
    backward(sum(outputs[0]));
    // With the input.
    CHECK(ledger().live(Tag::saved) == 3 * 16);
    outputs.clear();
    CHECK(ledger().live(Tag::saved) == 0);
    CHECK(ledger().live() == before - 2 * 16 + 16 + x.grad().bytes());
  }
  CHECK(ledger().live(Tag::temporaries) == kept.bytes() + x.bytes());
}

}  // namespace rematch
