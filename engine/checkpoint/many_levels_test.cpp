// Regions in regions, many levels deep.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::AmbientSnapshot;
using testing::LedgerScope;
using testing::same_bits;

enum class Kinds { plain, non_reentrant, reentrant, alternating };

/// Levels that work, draw and save on their way in and out, each with a weight of its own.
class Nesting {
 public:
  Nesting(int depth, Kinds kinds) : kinds_(kinds) {
    for (int i = 0; i <= depth; ++i) {
      weights_.push_back(testing::variable({1 + i / 1024.0, 1 - i / 1024.0}, {2}));
    }
  }

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
    if (kinds_ == Kinds::plain) return inside({h})[0];
    const bool reentrant =
        kinds_ == Kinds::reentrant || (kinds_ == Kinds::alternating && i % 2 == 0);
    return checkpoint(inside, {h}, {.reentrant = reentrant})[0];
  }

  Kinds kinds_;
  Tensors weights_;
  int runs_ = 0;
};

struct Outcome {
  Tensors tensors;
  AmbientSnapshot before;
  AmbientSnapshot after;
  int runs = 0;
};

Outcome train(int depth, Kinds kinds) {
  ambient().streams.seed(7);
  Nesting net(depth, kinds);
  const Tensor x = testing::variable({-0.5, -0.25}, {2});
  const Tensor y = net.run(x);
  Outcome o;
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
  const Kinds kinds = GENERATE(Kinds::non_reentrant, Kinds::reentrant, Kinds::alternating);
  const Outcome plain = train(depth, Kinds::plain);
  const Outcome nested = train(depth, kinds);
  CAPTURE(depth, static_cast<int>(kinds));
  REQUIRE(nested.tensors.size() == plain.tensors.size());
  for (std::size_t i = 0; i < plain.tensors.size(); ++i) {
    CAPTURE(i);
    REQUIRE(same_bits(nested.tensors[i], plain.tensors[i]));
  }
  CHECK(nested.after == nested.before);
  CHECK(nested.after == plain.after);
  CHECK(plain.runs == 1);
  // What comes after the inner region saves, so that early stop spares no level.
  CHECK(nested.runs == depth + 1);
}

}  // namespace rematch
