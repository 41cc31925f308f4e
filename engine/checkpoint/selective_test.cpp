// Selective checkpointing: a policy keeps the results of some ops for the recomputation.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <tuple>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"
#include "engine/testing/computed_ops.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace testing;

CheckpointOptions keeping(std::string_view op, int index = -1) {
  CheckpointOptions options;
  options.policy = [op, index](const OpInstance& instance) {
    const bool keep = instance.op == op && (index < 0 || instance.index == index);
    return keep ? Keep::must_save : Keep::must_recompute;
  };
  return options;
}

Tensors two_masks(const Tensors& in) {
  return {mul(tanh(dropout(tanh(dropout(in[0], 0.5)), 0.5)), in[0])};
}

/// Gradient of the input after a seeded step.
Tensor gradient_of(const Function& f, const CheckpointOptions* options) {
  ambient().streams.seed(7);
  const Tensor x = leaf({3, 4}, 5, DType::float64);
  backward(sum(options != nullptr ? checkpoint(f, {x}, *options)[0] : f({x})[0]));
  return x.grad();
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "each of many ops is asked for, computed twice, or once and kept") {
  const int n = GENERATE(2, 5, 17, 65, 257, 65537);
  const auto gradient = [&](const CheckpointOptions& options) {
    ambient().streams.seed(7);
    const Tensor x = testing::variable({-0.5}, {1});
    const Function f = [n](const Tensors& in) -> Tensors {
      return {testing::chain(static_cast<std::size_t>(n), in[0])};
    };
    const testing::ComputedOps computed;
    const Tensor y = checkpoint(f, {x}, options)[0];
    const std::int64_t saved = ledger().live(Tag::saved);
    backward(y);
    CHECK(ledger().live(Tag::saved) == 0);
    CHECK(testing::all_nonzero(x.grad()));
    return std::tuple(x.grad(), saved, computed.count);
  };
  const auto [plain, input, twice] = gradient({});
  CHECK(input == 8);
  CHECK(twice == 2 * n);
  const std::vector<Generator> streams = ambient().streams.states();
  CHECK(std::get<2>(gradient({.reentrant = true})) == 2 * n);
  // None for all; of thousands the last alone.
  for (int kept = n > 1000 ? n - 2 : -1; kept < n; ++kept) {
    CAPTURE(n, kept);
    int asked = 0;
    const CheckpointOptions options{.policy = [&](const OpInstance& op) {
      const bool draw = asked % 3 == 2;
      if (op.op != (draw ? "rrelu" : "tanh")) FAIL("op " << asked);
      if (op.index != (draw ? asked / 3 : asked - asked / 3)) FAIL("op " << asked);
      const bool keep = kept < 0 || kept == asked;
      ++asked;
      return keep ? Keep::must_save : Keep::must_recompute;
    }};
    const auto [got, saved, computed] = gradient(options);
    CHECK(asked == n);
    CHECK(same_bits(got, plain));
    CHECK(ambient().streams.states() == streams);
    // A draw keeps its noise, too.
    CHECK(saved == 8 * (kept < 0 ? n + 1 + n / 3 : kept % 3 == 2 ? 3 : 2));
    CHECK(computed == (kept < 0 ? n : 2 * n - 1));
  }
}

TEST_CASE_METHOD(LedgerScope, "ops in place are not kept, and do not harm what was") {
  const Tensor w = values_off_zero({4, 4}, 9).set_requires_grad(true);
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor y = linear(tanh(in[0]), w);
    return {relu_(y)};
  };
  const CheckpointOptions all{.policy = [](const OpInstance&) { return Keep::must_save; }};
  const Tensor x = leaf({3, 4}, 5, DType::float64);
  const Tensor loss = sum(checkpoint(f, {x}, all)[0]);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("kept of linear (op 1, float64 [3, 4]) was "
                                                      "changed in place since"));
  const CheckpointOptions before = keeping("tanh");
  CHECK(same_bits(gradient_of(f, &before), gradient_of(f, nullptr)));
}

TEST_CASE_METHOD(LedgerScope, "the reentrant variant takes no policy") {
  CheckpointOptions options = keeping("tanh");
  options.reentrant = true;
  CHECK_THROWS_WITH(checkpoint(two_masks, {leaf({3, 4}, 5, DType::float64)}, options),
                    ContainsSubstring("a policy belongs to the non-reentrant variant"));
}

TEST_CASE_METHOD(LedgerScope,
                 "what was kept and lives on elsewhere is not saved once its region is gone") {
  const bool throws = GENERATE(false, true);
  Tensor elsewhere;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = tanh(in[0]);
    elsewhere = h.detach();
    if (throws) throw std::runtime_error("the function gave up");
    return {mul(h, in[0])};
  };
  const Tensor x = leaf({3, 4}, 5, DType::float64);
  try {
    const Tensors y = checkpoint(f, {x}, keeping("tanh"));
    CHECK(ledger().live(Tag::saved) == 2 * 3 * 4 * 8);
  } catch (const std::runtime_error&) {
    CHECK(throws);
  }
  CHECK(ledger().live(Tag::saved) == 0);
  CHECK(ledger().live() == x.bytes() + elsewhere.bytes());
}

TEST_CASE_METHOD(LedgerScope, "a recomputation that failed leaves what was kept for the next one") {
  bool fail = false;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = tanh(in[0]);
    if (fail) throw std::runtime_error("the function gave up");
    return {tanh(mul(h, in[0]))};
  };
  const Tensor x = leaf({3, 4}, 5, DType::float64);
  const Tensor loss = sum(checkpoint(f, {x}, keeping("tanh"))[0]);
  fail = true;
  CHECK_THROWS_WITH(backward(loss, {.retain_graph = true, .inputs = {}}), "the function gave up");
  fail = false;
  CHECK_NOTHROW(backward(loss));
}

TEST_CASE_METHOD(LedgerScope, "a function that differentiates inside may have a policy") {
  const Function f = [](const Tensors& in) -> Tensors {
    const Tensor z = values_off_zero({3, 4}, 6).set_requires_grad(true);
    backward(sum(mul(z, tanh(z))));
    return {tanh(mul(in[0], z.grad()))};
  };
  const CheckpointOptions options = keeping("tanh");
  CHECK(same_bits(gradient_of(f, &options), gradient_of(f, nullptr)));
}

}  // namespace rematch
