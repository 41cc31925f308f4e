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
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::same_bits;

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
  int runs = 0;

  Function body() {
    return [this](const Tensors& in) -> Tensors {
      ++runs;
      return {linear(dropout(tanh(linear(in[0], w1)), 0.5), w2)};
    };
  }
};

struct NetOutcome {
  Tensor output;
  Tensor input_gradient;
  Tensor w1;
  Tensor w2;
  std::vector<Generator> streams;
  int runs = 0;
};

/// An ambient state of its own; what the outcome holds outlives it.
class FreshAmbient {
 public:
  FreshAmbient() : outer_(ambient()) {
    ambient() = Ambient();
    ambient().streams.seed(7);
  }
  ~FreshAmbient() { ambient() = outer_; }
  FreshAmbient(const FreshAmbient&) = delete;
  FreshAmbient& operator=(const FreshAmbient&) = delete;

 private:
  Ambient outer_;
};

NetOutcome step(const CheckpointOptions* options) {
  const FreshAmbient fresh;
  TwoLayers net;
  const Tensor x = normal({4, 5}, 3, true);
  const Tensors y = options ? checkpoint(net.body(), {x}, *options) : net.body()({x});
  backward(sum(y[0]));
  return {y[0].detach(), x.grad(), net.w1.grad(), net.w2.grad(), ambient().streams.states(),
          net.runs};
}

}  // namespace

TEST_CASE("a checkpointed step is a rematch of the plain one") {
  const CheckpointOptions options{.reentrant = GENERATE(false, true)};
  const NetOutcome plain = step(nullptr);
  const NetOutcome again = step(&options);
  CHECK(same_bits(plain.output, again.output));
  CHECK(same_bits(plain.input_gradient, again.input_gradient));
  CHECK(same_bits(plain.w1, again.w1));
  CHECK(same_bits(plain.w2, again.w2));
  CHECK(plain.streams == again.streams);
  CHECK(plain.runs == 1);
  CHECK(again.runs == 2);
}

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
