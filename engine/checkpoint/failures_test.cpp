// A failure inside a region, of a function or policy, leaves no trace in what comes after.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <optional>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

using namespace testing;

TEST_CASE_METHOD(LedgerScope, "an op whose policy threw is not counted among those of its kind") {
  std::vector<int> asked;
  CheckpointOptions options;
  options.policy = [&](const OpInstance& instance) {
    asked.push_back(instance.index);
    if (asked.size() == 1) throw std::domain_error("mine");
    return Keep::must_recompute;
  };
  const Function f = [](const Tensors& in) -> Tensors {
    Tensor h;
    try {
      h = tanh(in[0]);
    } catch (const std::domain_error&) {
      h = tanh(in[0]);
    }
    return {tanh(h)};
  };
  checkpoint(f, {leaf({3, 4}, 5, DType::float64)}, options);
  CHECK(asked == std::vector<int>{0, 0, 1});
}

TEST_CASE_METHOD(LedgerScope, "what a function captured goes with the graph that was walked") {
  const bool reentrant = GENERATE(false, true);
  CheckpointOptions options;
  options.reentrant = reentrant;
  const Tensor x = leaf({3, 4}, 5, DType::float64);
  const std::int64_t before = ledger().live();
  Tensor loss;
  {
    const Tensor captured = values_off_zero({8, 8}, 6);
    loss = sum(checkpoint(
        [captured](const Tensors& in) -> Tensors {
          return {mul(tanh(in[0]), sum(captured).item() > 0 ? in[0] : in[0])};
        },
        {x}, options)[0]);
  }
  CHECK(ledger().live() == before + loss.bytes() + 8 * 8 * 8);
  backward(loss, {.retain_graph = true});
  CHECK(ledger().live() == before + loss.bytes() + 8 * 8 * 8 + x.grad().bytes());
  backward(loss);
  CHECK(ledger().live() == before + loss.bytes() + x.grad().bytes());
}

TEST_CASE_METHOD(LedgerScope,
                 "a recomputation that failed at any point holds nothing, and can go again") {
  const int failure = GENERATE(0, 1, 2);
  const bool nested = GENERATE(false, true);
  // In the recomputation of what lies around, or of the region itself.
  const int failing = nested ? GENERATE(2, 3) : 2;
  const std::size_t n = GENERATE(1U, 2U, 5U);
  // Saved tensors belong to the caller, who holds them all the while.
  Tensors held;
  for (std::size_t i = 0; i < n; ++i) held.push_back(values_off_zero({3, 4}, 7 + i));
  for (std::size_t at = 0; at <= n; ++at) {
    CAPTURE(failure, nested, failing, n, at);
    const Tensor x = leaf({3, 4}, 5, DType::float64);
    int runs = 0;
    const Function f = [&](const Tensors& in) -> Tensors {
      Tensor y = in[0];
      ++runs;
      for (std::size_t i = 0; i <= n; ++i) {
        const bool fails = runs == failing && i == at;
        if (fails && failure == 0) throw std::domain_error("mine");
        if (fails && failure == 1) throw 1;
        if (fails && failure == 2) sigmoid(y);
        if (i < n) y = mul(tanh(mul(y, y)), held[i]);
      }
      return {y};
    };
    const CheckpointOptions options{.early_stop = at < n};
    const Function g = [&](const Tensors& in) -> Tensors {
      return nested ? Tensors{tanh(checkpoint(f, {tanh(in[0])}, options)[0])} : f(in);
    };
    {
      const Tensor loss = sum(checkpoint(g, {x}, nested ? CheckpointOptions{} : options)[0]);
      const std::int64_t saved = ledger().live(Tag::saved);
      std::optional<BackwardGroup> group;
      if (!nested) group.emplace();
      REQUIRE_THROWS(backward(loss, {.retain_graph = true}));
      REQUIRE(ledger().live(Tag::saved) == saved);
      backward(loss);
    }
    REQUIRE(ledger().live(Tag::saved) == 0);
    const Tensor again = leaf({3, 4}, 5, DType::float64);
    backward(sum(g({again})[0]));
    REQUIRE(same_bits(x.grad(), again.grad()));
  }
}

}  // namespace rematch
