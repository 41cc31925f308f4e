#include "engine/checkpoint/checkpoint.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/noise.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::same_bits;

Tensor normal(const Shape& shape, std::uint64_t seed, bool requires_grad) {
  Generator g{seed, 99, 0};
  Tensor t = Tensor::empty(shape, DType::float32, Tag::inputs);
  nn::fill_normal(t, g);
  t.set_requires_grad(requires_grad);
  return t;
}

struct Net {
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

struct Outcome {
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

Outcome step(const CheckpointOptions* options, bool input_requires_grad = true) {
  const FreshAmbient fresh;
  Net net;
  const Tensor x = normal({4, 5}, 3, input_requires_grad);
  const Tensors y = options ? checkpoint(net.body(), {x}, *options) : net.body()({x});
  backward(sum(y[0]));
  return {y[0].detach(), x.grad(), net.w1.grad(), net.w2.grad(), ambient().streams.states(),
          net.runs};
}

CheckpointOptions variant(bool reentrant) {
  CheckpointOptions options;
  options.reentrant = reentrant;
  return options;
}

}  // namespace

TEST_CASE("a checkpointed step is a rematch of the plain one") {
  const CheckpointOptions options = variant(GENERATE(false, true));
  const Outcome plain = step(nullptr);
  const Outcome again = step(&options);
  CHECK(same_bits(plain.output, again.output));
  CHECK(same_bits(plain.input_gradient, again.input_gradient));
  CHECK(same_bits(plain.w1, again.w1));
  CHECK(same_bits(plain.w2, again.w2));
  CHECK(plain.streams == again.streams);
  CHECK(plain.runs == 1);
  CHECK(again.runs == 2);
}

TEST_CASE("without preserved random state the recomputation draws another mask") {
  CheckpointOptions options = variant(GENERATE(false, true));
  options.preserve_rng = false;
  const Outcome plain = step(nullptr);
  const Outcome again = step(&options);
  CHECK(same_bits(plain.output, again.output));
  CHECK_FALSE(same_bits(plain.w1, again.w1));
  CHECK_FALSE(plain.streams == again.streams);
}

TEST_CASE("a reentrant checkpoint whose inputs are all frozen freezes what it contains") {
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  const std::int64_t before = frozen_checkpoint_warnings();
  const Tensors y = checkpoint(net.body(), {normal({4, 5}, 3, false)}, variant(true));
  CHECK_FALSE(y[0].requires_grad());
  CHECK(frozen_checkpoint_warnings() == before + 1);
}

TEST_CASE("a non-reentrant checkpoint trains its parameters even when its inputs are frozen") {
  const CheckpointOptions options = variant(false);
  const Outcome plain = step(nullptr, false);
  const Outcome again = step(&options, false);
  CHECK(same_bits(plain.w1, again.w1));
  CHECK_FALSE(again.input_gradient.defined());
}

TEST_CASE("after the forward a checkpointed region holds nothing but its inputs") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  const Tensor x = normal({4, 5}, 3, true);
  const std::int64_t base = fresh.ledger().live();
  // A temporary as the region's input, so that holding it shows.
  Tensor h = scale(x, 2.0);
  Tensors y = checkpoint(net.body(), {h}, variant(reentrant));
  h = Tensor();
  CHECK(fresh.ledger().live(Tag::saved) == 4 * 5 * 4);
  CHECK(fresh.ledger().live() == base + 4 * 5 * 4 + 4 * 3 * 4);
  const Tensor loss = sum(y[0]);
  y.clear();
  backward(loss);
  CHECK(fresh.ledger().live(Tag::saved) == 0);
  CHECK(fresh.ledger().live(Tag::temporaries) == loss.bytes());
}

TEST_CASE("each backward over a retained graph recomputes once") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  const Tensor loss = sum(checkpoint(net.body(), {normal({4, 5}, 3, true)}, variant(reentrant))[0]);
  backward(loss, {.retain_graph = true, .inputs = {}});
  CHECK(net.runs == 2);
  backward(loss, {.retain_graph = true, .inputs = {}});
  CHECK(net.runs == 3);
}

TEST_CASE("the second backward without retain_graph is refused") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  const Tensor loss = sum(checkpoint(net.body(), {normal({4, 5}, 3, true)}, variant(reentrant))[0]);
  backward(loss);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("retain_graph"));
}

TEST_CASE("pure nesting of depth d runs the innermost function d + 1 times without early stop") {
  const bool reentrant = GENERATE(false, true);
  const int depth = GENERATE(1, 2, 3, 4, 5);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  CheckpointOptions options = variant(reentrant);
  options.early_stop = false;
  Function f = net.body();
  for (int i = 1; i < depth; ++i) {
    f = [inner = f, options](const Tensors& in) { return checkpoint(inner, in, options); };
  }
  const Tensor loss = sum(checkpoint(f, {normal({4, 5}, 3, true)}, options)[0]);
  backward(loss);
  CHECK(net.runs == depth + 1);
}

TEST_CASE("with early stop the innermost function of a pure nesting runs twice") {
  const int depth = GENERATE(1, 2, 3, 4, 5);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  Function f = net.body();
  for (int i = 1; i < depth; ++i) {
    f = [inner = f](const Tensors& in) { return checkpoint(inner, in); };
  }
  backward(sum(checkpoint(f, {normal({4, 5}, 3, true)})[0]));
  CHECK(net.runs == 2);
}

TEST_CASE("a region that saves nothing is never recomputed") {
  const LedgerScope fresh;
  ambient().streams.seed(7);
  int runs = 0;
  const Function doubled = [&](const Tensors& in) -> Tensors {
    ++runs;
    return {scale(in[0], 2)};
  };
  backward(sum(checkpoint(doubled, {normal({2, 2}, 1, true)})[0]));
  CHECK(runs == 1);
}

TEST_CASE("an early stop leaves out what comes after the last saved tensor") {
  const LedgerScope fresh;
  ambient().streams.seed(7);
  int tail = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor h = tanh(in[0]);
    ++tail;
    return {scale(h, 2)};
  };
  CheckpointOptions options;
  options.early_stop = GENERATE(true, false);
  backward(sum(checkpoint(f, {normal({2, 2}, 1, true)}, options)[0]));
  CHECK(tail == (options.early_stop ? 1 : 2));
}

TEST_CASE("running statistics are updated once, in the forward") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  const auto run = [&](bool checkpointed) {
    Tensor mean = Tensor::zeros({5}, DType::float32);
    Tensor var = Tensor::ones({5}, DType::float32);
    Tensor weight = Tensor::ones({5}, DType::float32).set_requires_grad(true);
    Tensor bias = Tensor::zeros({5}, DType::float32).set_requires_grad(true);
    const Function f = [&](const Tensors& in) -> Tensors {
      return {batch_norm(in[0], weight, bias, mean, var)};
    };
    const Tensor x = normal({4, 5}, 3, true);
    backward(sum(checkpointed ? checkpoint(f, {x}, variant(reentrant))[0] : f({x})[0]));
    return mean.to_vector();
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("an exception in a recomputation leaves random state, grad mode and hooks as they were") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  int calls = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensors out = net.body()(in);
    if (++calls == 2) throw std::runtime_error("the function gave up");
    return out;
  };
  CheckpointOptions options = variant(reentrant);
  options.early_stop = false;
  const Tensor x = normal({4, 5}, 3, true);
  const Tensor loss = sum(checkpoint(f, {x}, options)[0]);
  const auto streams = ambient().streams.states();
  CHECK_THROWS_WITH(backward(loss), "the function gave up");
  CHECK(ambient().streams.states() == streams);
  CHECK(ambient().grad_enabled);
  CHECK(ambient().hooks == nullptr);
  CHECK_FALSE(ambient().recomputing);
  CHECK(current_backward() == 0);
  backward(sum(net.body()({x})[0]));
  CHECK(x.grad().defined());
}

TEST_CASE("the reentrant variant refuses partial backward passes, the other takes them") {
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  const Tensor x = normal({4, 5}, 3, true);
  const std::array inputs{x};
  const std::array reentrant{sum(checkpoint(net.body(), {x}, variant(true))[0])};
  CHECK_THROWS_WITH(grad(reentrant, inputs), ContainsSubstring("reentrant = false"));
  const std::array plain{sum(net.body()({x})[0])};
  ambient().streams.seed(7);
  const Tensor expected = grad(plain, inputs)[0];
  CHECK(expected.defined());
  CHECK_FALSE(net.w1.grad().defined());
}

TEST_CASE("the same tensor passed twice gets both contributions") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  const Function f = [](const Tensors& in) -> Tensors { return {mul(tanh(in[0]), in[1])}; };
  const Tensor x = normal({3, 3}, 3, true);
  backward(sum(f({x, x})[0]));
  const Tensor expected = x.grad().clone();
  Tensor y = x;
  y.set_grad(Tensor());
  backward(sum(checkpoint(f, {x, x}, variant(reentrant))[0]));
  CHECK(same_bits(expected, x.grad()));
}

TEST_CASE("unused outputs contribute nothing") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  const Function f = [&](const Tensors& in) -> Tensors {
    return {tanh(linear(in[0], net.w1)), tanh(scale(in[0], 3))};
  };
  const Tensor x = normal({4, 5}, 3, true);
  backward(sum(f({x})[0]));
  const Tensor expected = x.grad().clone();
  Tensor y = x;
  y.set_grad(Tensor());
  backward(sum(checkpoint(f, {x}, variant(reentrant))[0]));
  CHECK(same_bits(expected, x.grad()));
}

TEST_CASE("an input changed in place after the forward is noticed in backward") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  Tensor h = scale(normal({4, 5}, 3, true), 2);
  const Tensor loss = sum(checkpoint(net.body(), {h}, variant(reentrant))[0]);
  scale_(h, 3);
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("changed by an in-place operation"));
}

TEST_CASE("with grad mode off a checkpoint runs its function and nothing else") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  Net net;
  const GradMode off(false);
  const Tensors y = checkpoint(net.body(), {normal({4, 5}, 3, true)}, variant(reentrant));
  CHECK_FALSE(y[0].requires_grad());
  CHECK(net.runs == 1);
  CHECK(fresh.ledger().live(Tag::saved) == 0);
}

TEST_CASE("a graph that is dropped without a backward leaves nothing behind") {
  const bool reentrant = GENERATE(false, true);
  const LedgerScope fresh;
  ambient().streams.seed(7);
  {
    Net net;
    const Tensor loss =
        sum(checkpoint(net.body(), {normal({4, 5}, 3, true)}, variant(reentrant))[0]);
  }
  CHECK(fresh.ledger().live() == 0);
}

}  // namespace rematch
