// Partial passes through non-reentrant segments: what leads to the inputs is recomputed, once, and
// nothing else.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace testing;

/// A chain of segments of two branches, with a weight each; counts their runs.
struct Chain {
  explicit Chain(std::size_t n, bool checkpointed, const CheckpointOptions& options = {})
      : runs(n, 0) {
    ambient().streams.seed(7);
    boundaries.push_back(variable({-0.5, -0.25}, {2}));
    for (std::size_t i = 0; i < n; ++i) {
      weights.push_back(variable({1 + static_cast<double>(i) / 1024, 1}, {2}));
      others.push_back(variable({0.5, 0.25 + static_cast<double>(i) / 1024}, {2}));
      const Function f = [this, i](const Tensors& in) -> Tensors {
        ++runs[i];
        const Tensor drawn = tanh(rrelu(mul(in[0], weights[i]), 0.75, 1.25));
        return {add(drawn, tanh(mul(in[0], others[i])))};
      };
      boundaries.push_back(checkpointed ? checkpoint(f, {boundaries.back()}, options)[0]
                                        : f({boundaries.back()})[0]);
    }
    loss = sum(boundaries.back());
    forget();
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void forget() { std::fill(runs.begin(), runs.end(), 0); }

  std::vector<int> runs;
  Tensors weights;
  Tensors others;
  /// The input of each segment, and the output of the last.
  Tensors boundaries;
  Tensor loss;
};

/// Runs of n segments when those from `first` on were recomputed `times` times.
std::vector<int> recomputed(std::size_t n, std::size_t first, int times) {
  std::vector<int> runs(n, 0);
  std::fill(runs.begin() + static_cast<std::ptrdiff_t>(first), runs.end(), times);
  return runs;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "grad() recomputes the segments behind its input, each once") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U, 65U);
  Chain chain(n, true);
  Chain plain(n, false);
  for (std::size_t i = 0; i <= n; ++i) {
    CAPTURE(n, i);
    const Tensors inputs{chain.boundaries[i]};
    const Tensors expected = grad(Tensors{plain.loss}, Tensors{plain.boundaries[i]}, {}, true);
    const Tensors got = grad(Tensors{chain.loss}, inputs, {}, true);
    CHECK(testing::all_nonzero(expected[0]));
    CHECK(same_bits(got[0], expected[0]));
    CHECK(chain.runs == recomputed(n, i, 1));
    chain.forget();
  }
  for (std::size_t i = 0; i < n; ++i) {
    CAPTURE(n, i);
    const Tensors got = grad(Tensors{chain.loss}, Tensors{chain.weights[i]}, {}, true);
    const Tensors expected = grad(Tensors{plain.loss}, Tensors{plain.weights[i]}, {}, true);
    CHECK(same_bits(got[0], expected[0]));
    CHECK(chain.runs == recomputed(n, i, 1));
    chain.forget();
  }
  for (const Tensor& w : chain.weights) CHECK_FALSE(w.grad().defined());
}

TEST_CASE_METHOD(LedgerScope, "partial passes of one group recompute each segment once in all") {
  const std::size_t n = GENERATE(2U, 5U, 17U);
  Chain chain(n, true);
  Chain plain(n, false);
  {
    const BackwardGroup group;
    // A saved tensor serves one pass of a group, so each walks one branch of a segment.
    for (std::size_t i = n; i-- > 0;) {
      for (const auto& weights : {&Chain::weights, &Chain::others}) {
        CAPTURE(n, i);
        const auto part = [&](const Chain& c) {
          return grad(Tensors{sum(c.boundaries[i + 1])}, Tensors{(c.*weights)[i]}, {}, true)[0];
        };
        CHECK(same_bits(part(chain), part(plain)));
      }
    }
  }
  CHECK(chain.runs == recomputed(n, 0, 1));
}

TEST_CASE_METHOD(LedgerScope, "a partial pass uses up what policies kept behind its input alone") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U);
  const std::size_t first = GENERATE(0U, 1U, 4U);
  if (first >= n) return;
  CAPTURE(n, first);
  Chain chain(n, true, {.policy = [](const OpInstance& op) {
                return op.op == "rrelu" ? Keep::must_save : Keep::must_recompute;
              }});
  Chain plain(n, false);
  for (Chain* c : {&chain, &plain}) {
    backward(c->loss, {.retain_graph = true, .inputs = {c->weights[first]}});
  }
  CHECK(same_bits(chain.weights[first].grad(), plain.weights[first].grad()));
  CHECK(chain.runs == recomputed(n, first, 1));
  // The segment before can still be walked; the others cannot.
  if (first > 0) {
    const auto before = [&](const Chain& c) {
      return grad(Tensors{sum(c.boundaries[first])}, Tensors{c.boundaries[0]}, {}, true)[0];
    };
    CHECK(same_bits(before(chain), before(plain)));
  }
  CHECK_THROWS_WITH(backward(chain.loss), ContainsSubstring("used up by an earlier recomputation"));
}

}  // namespace rematch
