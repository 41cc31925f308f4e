// Policies over many ops: each index, each kept result.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/computed_ops.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::ComputedOps;
using testing::LedgerScope;
using testing::same_bits;
using testing::variable;

/// A chain of n ops: two tanh, then a draw that leaves no element 0, and so on.
std::string_view op_at(int i) { return i % 3 == 2 ? "rrelu" : "tanh"; }
int index_at(int i) { return i % 3 == 2 ? i / 3 : i - i / 3; }

Function chain(int n) {
  return [n](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (int i = 0; i < n; ++i) y = i % 3 == 2 ? rrelu(y, 0.75, 1.25) : tanh(y);
    return {y};
  };
}

/// Keeps the op at place p of a chain alone.
CheckpointOptions keeping(int p) {
  return {.policy = [p](const OpInstance& op) {
    return op.op == op_at(p) && op.index == index_at(p) ? Keep::must_save : Keep::must_recompute;
  }};
}

const CheckpointOptions kKeepAll{.policy = [](const OpInstance&) { return Keep::must_save; }};

std::vector<int> places(int n) {
  if (n > 1000) return {n - 1};
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

Tensor gradient_of_chain(int n, const CheckpointOptions* options) {
  ambient().streams.seed(7);
  const Tensor x = variable({-0.5}, {1});
  backward(options != nullptr ? checkpoint(chain(n), {x}, *options)[0] : chain(n)({x})[0]);
  CHECK(testing::all_nonzero(x.grad()));
  return x.grad();
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a policy is asked for each of many ops by its name and index") {
  const int n = GENERATE(2, 5, 17, 65, 257, 65537);
  int asked = 0;
  bool right = true;
  CheckpointOptions options;
  options.policy = [&](const OpInstance& op) {
    right = right && op.op == op_at(asked) && op.index == index_at(asked);
    ++asked;
    return Keep::must_recompute;
  };
  gradient_of_chain(n, &options);
  CHECK(asked == n);
  CHECK(right);
}

TEST_CASE_METHOD(LedgerScope, "what is kept of any one op is used, and all else is recomputed") {
  const int n = GENERATE(2, 5, 17, 65, 257, 65537);
  const Tensor plain = gradient_of_chain(n, nullptr);
  const auto streams = ambient().streams.states();
  for (const int p : places(n)) {
    CAPTURE(n, p);
    const CheckpointOptions options = keeping(p);
    const ComputedOps computed;
    CHECK(same_bits(gradient_of_chain(n, &options), plain));
    CHECK(computed.count == 2 * n - 1);
    CHECK(ambient().streams.states() == streams);
  }
}

TEST_CASE_METHOD(LedgerScope, "what is kept of all of many ops is held, used and let go") {
  const int n = GENERATE(2, 5, 17, 65, 257, 65537);
  const Tensor plain = gradient_of_chain(n, nullptr);
  ambient().streams.seed(7);
  const Tensor x = variable({-0.5}, {1});
  const std::int64_t before = ledger().live();
  const ComputedOps computed;
  const Tensor y = checkpoint(chain(n), {x}, kKeepAll)[0];
  // A draw keeps its noise, too.
  CHECK(ledger().live(Tag::saved) == 8 * (n + 1 + n / 3));
  backward(y, {.retain_graph = true});
  CHECK(computed.count == n);
  // The graph is kept, and what it had kept has served.
  CHECK(ledger().live(Tag::saved) == 8);
  CHECK(ledger().live() == before + y.bytes() + x.grad().bytes());
  CHECK(same_bits(x.grad(), plain));
}

TEST_CASE_METHOD(LedgerScope, "a kept result that changed is noticed, whichever it is") {
  const int n = GENERATE(2, 5, 17, 65, 257);
  const Tensor x = variable({0.5}, {1});
  Tensors results;
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (int i = 0; i < n; ++i) {
      y = tanh(y);
      if (!ambient().recomputing) results.push_back(y.detach());
    }
    return {y};
  };
  for (int p = 0; p < n; ++p) {
    CAPTURE(n, p);
    const Tensor y = checkpoint(f, {x}, kKeepAll)[0];
    scale_(results[static_cast<std::size_t>(p)], 2);
    results.clear();
    CHECK_THROWS_WITH(backward(y), ContainsSubstring("(op " + std::to_string(p) +
                                                     ", float64 [1]) was changed in place since"));
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "every result of an op that is kept is used, and held to its version") {
  testing::with_count(GENERATE(2, 5, 17, 65, 257), [&]<std::size_t N>() {
    std::array<Tensor, N> results;
    const Function f = [&](const Tensors& in) -> Tensors {
      const std::array<Tensor, N> y = testing::powers<N>(in[0]);
      if (!ambient().recomputing) {
        for (std::size_t i = 0; i < N; ++i) results[i] = y[i].detach();
      }
      return {y.begin(), y.end()};
    };
    const Tensor x = variable({-1}, {1});
    const ComputedOps computed;
    for (std::size_t p = 0; p < N; ++p) {
      CAPTURE(N, p);
      Tensors y = checkpoint(f, {x}, kKeepAll);
      CHECK(ledger().live(Tag::saved) == 8 * static_cast<std::int64_t>(N + 1));
      backward(y[p]);
      CHECK(x.grad().item() == static_cast<double>(p + 1) * (p % 2 == 0 ? 1 : -1));
      Tensor(x).set_grad({});
      y = checkpoint(f, {x}, kKeepAll);
      scale_(results[p], 2);
      CHECK_THROWS_WITH(backward(y[p]), ContainsSubstring("was changed in place since"));
    }
    // Forwards alone.
    CHECK(computed.count == 2 * static_cast<std::int64_t>(N));
  });
}

TEST_CASE_METHOD(LedgerScope, "what a policy kept serves one of many backwards, or one group") {
  const int n = GENERATE(2, 5, 17, 65);
  const bool grouped = GENERATE(false, true);
  const bool partial = GENERATE(false, true);
  CAPTURE(n, grouped, partial);
  const Function f = [n](const Tensors& in) {
    Tensors out;
    for (int i = 0; i < n; ++i) out.push_back(mul(tanh(in[0]), tanh(scale(in[1], i + 1.0))));
    return out;
  };
  const auto leaves = [] { return Tensors{variable({0.5}, {1}), variable({-0.25}, {1})}; };
  const Tensors in = leaves();
  const Tensors plain = leaves();
  const Tensors outputs = checkpoint(f, in, kKeepAll);
  const Tensors expected = f(plain);
  const auto walk = [&](const Tensor& y, const Tensors& to) {
    if (!partial) return backward(y, {.retain_graph = true});
    backward(y, {.retain_graph = true, .inputs = {to[1]}});
  };
  std::optional<BackwardGroup> group;
  if (grouped) group.emplace();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    CAPTURE(i);
    if (i == 0 || grouped) {
      walk(outputs[i], in);
      walk(expected[i], plain);
    } else {
      CHECK_THROWS_WITH(walk(outputs[i], in),
                        ContainsSubstring("used up by an earlier recomputation"));
    }
  }
  CHECK(same_bits(in[0].grad(), plain[0].grad()));
  CHECK(same_bits(in[1].grad(), plain[1].grad()));
  CHECK(in[0].grad().defined() != partial);
}

}  // namespace rematch
