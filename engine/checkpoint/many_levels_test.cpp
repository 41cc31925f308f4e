// Regions in regions, many levels deep.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <utility>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/computed_ops.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::AmbientSnapshot;
using testing::LedgerScope;
using testing::same_bits;

enum class LevelKinds { plain, non_reentrant, reentrant, alternating };

/// Levels that work, draw and save on their way in and out, each with its own weight.
class Nesting {
 public:
  Nesting(int depth, LevelKinds kinds) : kinds_(kinds) {
    for (int i = 0; i <= depth; ++i) {
      weights_.push_back(testing::variable({1 + i / 1024.0, 1 - i / 1024.0}, {2}));
    }
  }

  /// Options of the region at level i; by default all alike.
  std::function<CheckpointOptions(std::size_t)> options = [](std::size_t) {
    return CheckpointOptions{};
  };

  Tensor run(const Tensor& x) { return level(0, x); }
  int innermost_runs() const { return runs_; }
  const Tensors& weights() const { return weights_; }

 private:
  Tensor level(std::size_t i, const Tensor& x) {
    const bool innermost = i + 1 == weights_.size();
    if (innermost) ++runs_;
    const Tensor h = rrelu(tanh(mul(x, weights_[i])), 0.75, 1.25);
    if (innermost) return h;
    const Function inside = [this, i](const Tensors& in) -> Tensors {
      return {level(i + 1, in[0])};
    };
    return rrelu(tanh(around(i, inside, h)), 0.75, 1.25);
  }

  Tensor around(std::size_t i, const Function& inside, const Tensor& h) const {
    if (kinds_ == LevelKinds::plain) return inside({h})[0];
    const bool reentrant =
        kinds_ == LevelKinds::reentrant || (kinds_ == LevelKinds::alternating && i % 2 == 0);
    CheckpointOptions here = options(i);
    here.reentrant = reentrant;
    return checkpoint(inside, {h}, here)[0];
  }

  LevelKinds kinds_;
  Tensors weights_;
  int runs_ = 0;
};

struct NestOutcome {
  Tensors tensors;
  AmbientSnapshot before;
  AmbientSnapshot after;
  int runs = 0;
};

NestOutcome train(int depth, LevelKinds kinds) {
  ambient().streams.seed(7);
  Nesting net(depth, kinds);
  const Tensor x = testing::variable({-0.5, -0.25}, {2});
  const Tensor y = net.run(x);
  NestOutcome o;
  o.before = AmbientSnapshot::now();
  backward(sum(y));
  o.after = AmbientSnapshot::now();
  CHECK(testing::all_nonzero(x.grad()));
  o.runs = net.innermost_runs();
  o.tensors = {y.detach(), x.grad()};
  for (const Tensor& w : net.weights()) o.tensors.push_back(w.grad());
  return o;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "a nesting of any depth and of any mix of variants trains as the plain run does") {
  const int depth = GENERATE(2, 5, 17, 65, 129);
  const LevelKinds kinds =
      GENERATE(LevelKinds::non_reentrant, LevelKinds::reentrant, LevelKinds::alternating);
  const NestOutcome plain = train(depth, LevelKinds::plain);
  const NestOutcome nested = train(depth, kinds);
  CAPTURE(depth, static_cast<int>(kinds));
  REQUIRE(nested.tensors.size() == plain.tensors.size());
  for (std::size_t i = 0; i < plain.tensors.size(); ++i) {
    CAPTURE(i);
    REQUIRE(same_bits(nested.tensors[i], plain.tensors[i]));
  }
  CHECK(nested.after == nested.before);
  CHECK(nested.after == plain.after);
  CHECK(plain.runs == 1);
  // The ops after the inner region save, so that early stop spares no level.
  CHECK(nested.runs == depth + 1);
}

TEST_CASE_METHOD(LedgerScope, "a changed weight is noticed by any of many levels that looks") {
  const int depth = GENERATE(2, 5, 17, 65);
  const int step = depth > 20 ? 9 : 1;
  // -1: all of them look.
  for (int looks = -1; looks < depth; looks += looks < 0 ? 1 : step) {
    CAPTURE(depth, looks);
    // Regions inside a reentrant one record in its recomputation, and see the weight as it is
    // then.
    Nesting net(depth, LevelKinds::non_reentrant);
    net.options = [&](std::size_t i) {
      const bool here = looks < 0 || i == static_cast<std::size_t>(looks);
      return CheckpointOptions{.determinism =
                                   here ? DeterminismCheck::metadata : DeterminismCheck::none};
    };
    const Tensor y = sum(net.run(testing::variable({-0.5, -0.25}, {2})));
    // Read in the innermost function, that is, in every region.
    Tensor innermost = net.weights().back();
    innermost.set_name("innermost");
    {
      const GradMode off(false);
      scale_(innermost, 1);
    }
    CHECK_THROWS_WITH(backward(y), ContainsSubstring("\"innermost\" (float64 [2]), operand 1 of "
                                                     "mul, was changed in place"));
    // The forward, and the recomputations from the outermost region on.
    CHECK(net.innermost_runs() == 2 + std::max(looks, 0));
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "what a policy keeps at one of many levels is used in its recomputation") {
  const int depth = GENERATE(2, 5, 17, 33);
  const auto computed_with = [&](int keeps) {
    ambient().streams.seed(7);
    Nesting net(depth, LevelKinds::non_reentrant);
    net.options = [&](std::size_t i) {
      CheckpointOptions options;
      if (i != static_cast<std::size_t>(keeps)) return options;
      // The draw of the innermost function: all levels within draw once before it.
      options.policy = [depth, i](const OpInstance& op) {
        const bool innermost = op.op == "rrelu" && op.index == depth - 1 - static_cast<int>(i);
        return innermost ? Keep::must_save : Keep::must_recompute;
      };
      return options;
    };
    const Tensor x = testing::variable({-0.5, -0.25}, {2});
    const testing::ComputedOps computed;
    backward(sum(net.run(x)));
    return std::pair(computed.count, x.grad());
  };
  const auto [all, gradient] = computed_with(-1);
  CHECK(testing::all_nonzero(gradient));
  const int step = depth > 20 ? 9 : 1;
  for (int keeps = 0; keeps < depth; keeps += step) {
    CAPTURE(depth, keeps);
    const auto [computed, got] = computed_with(keeps);
    CHECK(computed == all - 1);
    CHECK(same_bits(got, gradient));
  }
}

}  // namespace rematch
