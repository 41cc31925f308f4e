// A cache of casts must not change a recomputation, which may find it warmer or colder than the
// forward did: no op is added or dropped, no other tensor is saved, no memory is kept.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

/// Two linears that share a weight, and a third of its own.
struct Tied {
  Tensor shared = leaf({4, 4}, 2);
  Tensor own = leaf({4, 4}, 3);
  Tensor x = leaf({3, 4}, 1);

  Function function() {
    return [this](const Tensors& in) -> Tensors {
      return {linear(tanh(linear(tanh(linear(in[0], shared)), own)), shared)};
    };
  }
};

}  // namespace

TEST_CASE_METHOD(LedgerScope, "kept results are found by the index that the forward gave them") {
  // pytorch/pytorch#193338: there a cast is an op, the cache was warm in the forward and cold in
  // the recomputation, so that the recomputation looked for a cast which the forward had not run.
  CheckpointOptions options;
  options.early_stop = GENERATE(false, true);
  const bool cache = GENERATE(false, true);
  const bool warm = GENERATE(false, true);
  const bool inside = GENERATE(false, true);
  const int index = GENERATE(-1, 0, 1, 2);
  std::vector<std::string> asked;
  options.policy = [&](const OpInstance& op) {
    asked.push_back(std::string(op.op) + " " + std::to_string(op.index));
    const bool keep = op.op == "linear" && (index < 0 || op.index == index);
    return keep ? Keep::must_save : Keep::must_recompute;
  };
  const auto gradients = [&](bool checkpointed) {
    Tied net;
    std::optional<AutocastScope> scope(std::in_place, true, cache);
    if (warm) linear(net.x, net.shared);
    const Tensor loss = sum(
        (checkpointed ? checkpoint(net.function(), {net.x}, options) : net.function()({net.x}))[0]);
    if (!inside) scope.reset();
    backward(loss);
    return Tensors{net.x.grad(), net.shared.grad(), net.own.grad()};
  };
  const Tensors expected = gradients(false);
  const Tensors got = gradients(true);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(got[i], expected[i]));
  CHECK(asked == std::vector<std::string>{"linear 0", "tanh 0", "linear 1", "tanh 1", "linear 2"});
}

TEST_CASE_METHOD(LedgerScope,
                 "a recomputation within a live scope of other settings has its own cache") {
  const bool reentrant = GENERATE(false, true);
  const bool cache_around = GENERATE(false, true);
  CheckpointOptions options;
  options.reentrant = reentrant;
  Tied net;
  std::shared_ptr<CastCache> seen;
  const Function f = [&](const Tensors& in) -> Tensors {
    seen = ambient().autocast.cache;
    return net.function()(in);
  };
  Tensor loss;
  {
    const AutocastScope scope(true, !cache_around);
    loss = sum(checkpoint(f, {net.x}, options)[0]);
  }
  const AutocastScope scope(true, cache_around);
  backward(loss);
  CHECK(ambient().autocast.cache->size() == 0);
  // The cache of the recomputation is emptied at its end, even if it is still referenced.
  CHECK(seen != ambient().autocast.cache);
  CHECK(seen->size() == 0);
  CHECK(ambient().autocast.cache_enabled == cache_around);
}

TEST_CASE_METHOD(LedgerScope,
                 "the casts of a scope within a region end with it, in a recomputation, too") {
  CheckpointOptions options;
  options.reentrant = GENERATE(false, true);
  options.early_stop = false;
  const Tensor w = leaf({4, 4}, 2);
  std::vector<std::int64_t> left;
  const Function f = [&](const Tensors& in) -> Tensors {
    const std::int64_t before = ledger().live();
    {
      const GradMode off(false);
      const AutocastScope on;
      linear(in[0], w);
    }
    left.push_back(ledger().live() - before);
    return {tanh(in[0])};
  };
  const Tensor loss = sum(checkpoint(f, {leaf({3, 4}, 1)}, options)[0]);
  const AutocastScope around;
  backward(loss);
  CHECK(left == std::vector<std::int64_t>{0, 0});
}

}  // namespace rematch
