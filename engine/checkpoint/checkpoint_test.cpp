#include "engine/checkpoint/checkpoint.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"
#include "engine/testing/ledger_scope.h"

namespace rematch {
namespace {

using testing::LedgerScope;

Tensor normal(const Shape& shape, std::uint64_t seed, bool requires_grad) {
  Generator g{seed, 99, 0};
  Tensor t = Tensor::empty(shape, DType::float32, Tag::inputs);
  nn::fill_normal(t, g);
  t.set_requires_grad(requires_grad);
  return t;
}

struct TwoLayers {
  Tensor w1 = normal({6, 5}, 1, true);
  Tensor w2 = normal({3, 6}, 2, true);

  Function body() {
    return [this](const Tensors& in) -> Tensors {
      return {linear(dropout(tanh(linear(in[0], w1)), 0.5), w2)};
    };
  }
};

}  // namespace

TEST_CASE("after the forward a checkpointed region holds nothing but its inputs") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  TwoLayers net;
  const Tensor x = normal({4, 5}, 3, true);
  const std::int64_t base = fresh.ledger().live();
  // A temporary as the region's input, so that holding it shows.
  Tensor h = scale(x, 2.0);
  Tensors y = checkpoint(net.body(), {h}, {.reentrant = reentrant});
  h = Tensor();
  CHECK(fresh.ledger().live(Tag::saved) == 4 * 5 * 4);
  CHECK(fresh.ledger().live() == base + 4 * 5 * 4 + 4 * 3 * 4);
  const Tensor loss = sum(y[0]);
  y.clear();
  backward(loss);
  CHECK(fresh.ledger().live(Tag::saved) == 0);
  CHECK(fresh.ledger().live(Tag::temporaries) == loss.bytes());
}

TEST_CASE("a graph that is dropped without a backward leaves nothing behind") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  {
    TwoLayers net;
    const Tensor loss =
        sum(checkpoint(net.body(), {normal({4, 5}, 3, true)}, {.reentrant = reentrant})[0]);
  }
  CHECK(fresh.ledger().live() == 0);
}

}  // namespace rematch
