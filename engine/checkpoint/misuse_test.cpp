// Misuse that checkpointing must survive, or refuse with a message.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/sequential.h"
#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;

Tensor row(std::vector<double> values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return Tensor::from(values, shape).set_requires_grad(true);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "a recomputation that cannot begin leaves no mark of a recomputation behind") {
  class Refuses final : public Mechanics {
   public:
    void restore_rng(Ambient&, const Streams&) const override { throw std::runtime_error("no"); }
  };
  const Refuses mechanics;
  const bool reentrant = GENERATE(false, true);
  CheckpointOptions options{.reentrant = reentrant};
  options.mechanics = &mechanics;
  Tensor x = row({1, 2});
  const Function f = [](const Tensors& in) -> Tensors { return {mul(in[0], in[0])}; };
  const Tensor y = sum(checkpoint(f, {x}, options)[0]);
  const std::vector<Generator> before = ambient().streams.states();
  CHECK_THROWS_WITH(backward(y), "no");
  CHECK_FALSE(ambient().recomputing);
  CHECK(ambient().grad_enabled);
  CHECK(ambient().streams.states() == before);
}

TEST_CASE_METHOD(LedgerScope,
                 "a reentrant checkpoint whose inputs are frozen only runs its function") {
  Tensor x = Tensor::from(std::vector<double>{1, 2}, {2});
  Tensor captured = Tensor::from(std::vector<double>{5, 6}, {2});
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor m = in[0];
    scale_(m, 3);
    return {m, captured};
  };
  const std::int64_t warnings = frozen_checkpoint_warnings();
  Tensors y = checkpoint(f, {x}, {.reentrant = true});
  CHECK(frozen_checkpoint_warnings() == warnings + 1);
  for (Tensor& t : y) {
    CHECK_FALSE(t.requires_grad());
    scale_(t, 2);
  }
  CHECK(x.to_vector() == std::vector<double>{6, 12});
  CHECK(captured.to_vector() == std::vector<double>{10, 12});
}

TEST_CASE("frozen checkpoints are counted from none, on each thread by itself") {
  std::int64_t first = -1;
  std::int64_t second = -1;
  std::thread([&] {
    first = frozen_checkpoint_warnings();
    checkpoint([](const Tensors& in) { return in; }, {Tensor::from(std::vector<double>{1}, {1})},
               {.reentrant = true});
    second = frozen_checkpoint_warnings();
  }).join();
  CHECK(first == 0);
  CHECK(second == 1);
}

TEST_CASE_METHOD(LedgerScope, "a view of what is known elsewhere is sealed, however deep it lies") {
  const Tensor x = row({1, 2, 3, 4});
  Tensor kept;
  const int known = GENERATE(0, 1, 2, 3);
  const Function f = [&](const Tensors& in) -> Tensors {
    const Tensor made = scale(in[0], 2);
    const Tensor view = reshape(made, {2, 2});
    const Tensor view_of_view = reshape(view, {4, 1});
    if (known == 1) kept = made;
    if (known == 2) kept = view;
    if (known == 3) kept = made.detach();
    return {view_of_view};
  };
  Tensor y = checkpoint(f, {x}, {.reentrant = true})[0];
  if (known == 0) {
    CHECK_NOTHROW(scale_(y, 5));
    CHECK(y.to_vector() == std::vector<double>{10, 20, 30, 40});
  } else {
    CHECK_THROWS_WITH(scale_(y, 5), ContainsSubstring("shares its memory"));
  }
}

TEST_CASE_METHOD(LedgerScope, "a reentrant checkpoint looks at every input and every output") {
  constexpr std::size_t n = 17;
  const Tensor w = testing::tensor({5, 6}, {2});
  Tensors inputs;
  for (std::size_t i = 0; i < n; ++i) inputs.push_back(testing::values_off_zero({2}, i));
  inputs[n / 2].set_requires_grad(true);
  for (std::size_t p = 0; p < n; ++p) {
    CAPTURE(p);
    const auto run = [&](auto change) {
      const Function f = [&](const Tensors& in) {
        Tensors out;
        for (const Tensor& t : in) out.push_back(tanh(t));
        change(in, out);
        return out;
      };
      return checkpoint(f, inputs, {.reentrant = true});
    };
    CHECK_THROWS_WITH(run([&](const Tensors&, Tensors& out) { out[p] = Tensor(); }),
                      ContainsSubstring("returned an undefined tensor"));
    CHECK_THROWS_WITH(run([&](const Tensors& in, Tensors&) {
                        const GradMode off(false);
                        Tensor input = in[p];
                        scale_(input, 1);
                      }),
                      ContainsSubstring("changed its input " + std::to_string(p) + " in place"));
    Tensors shared = run([&](const Tensors&, Tensors& out) { out[p] = w; });
    for (std::size_t i = 0; i < n; ++i) {
      if (i != p) CHECK_NOTHROW(scale_(shared[i], 2));
    }
    CHECK_THROWS_WITH(scale_(shared[p], 2), ContainsSubstring("shares its memory"));
  }
}

TEST_CASE_METHOD(LedgerScope, "undefined tensors and empty functions are refused by name") {
  Tensor nothing;
  CHECK_THROWS_WITH(relu_(nothing), ContainsSubstring("undefined"));
  const Tensor x = row({1});
  CHECK_THROWS_WITH(x.at(1), ContainsSubstring("an element below 1 expected, got 1"));
  for (const bool reentrant : {false, true}) {
    for (const std::size_t missing : {0, 1, 2}) {
      Tensors inputs(3, x);
      inputs[missing] = Tensor();
      CHECK_THROWS_WITH(
          checkpoint([](const Tensors& in) { return in; }, inputs, {.reentrant = reentrant}),
          "[checkpoint] input " + std::to_string(missing) + " is undefined");
    }
  }
  const std::vector<Function> functions(2);
  CHECK_THROWS_WITH(checkpoint_sequential(functions, 1, {x}, LastSegment::stored, {}),
                    ContainsSubstring("function 0 is empty"));
}

TEST_CASE_METHOD(LedgerScope, "a module that is checkpointed without its input says what to do") {
  const bool reentrant = GENERATE(false, true);
  nn::Activation layer(nn::ActivationKind::relu);
  const Tensor x = row({1, 2});
  CHECK_THROWS_WITH(
      checkpoint(layer.function(), {}, {.reentrant = reentrant}),
      "[Module] one input expected, got 0; hand it to checkpoint() with the function: "
      "checkpoint(layer.function(), {x})");
  CHECK_THROWS_WITH(checkpoint(layer.function(), {x, x}, {.reentrant = reentrant}),
                    ContainsSubstring("one input expected, got 2"));
  CHECK_NOTHROW(checkpoint(layer.function(), {x}, {.reentrant = reentrant}));
}

TEST_CASE_METHOD(LedgerScope, "a random layer with a stream that is not there says so") {
  const Tensor x = row({1, 2});
  for (const int stream : {1, -1, 70000}) {
    CHECK_THROWS_WITH(
        dropout(x, 0.5, {.train = true, .stream = stream}),
        ContainsSubstring("a position below 1 expected, got " + std::to_string(stream)));
  }
}

TEST_CASE_METHOD(LedgerScope, "an output that shares memory is not overwritten behind autograd") {
  Tensor x = row({1, 2, 3, 4});
  Tensor w = row({3, 4});
  const Tensor h = scale(x, 1);
  const Function captured = [&](const Tensors& in) -> Tensors { return {w, sum(in[0])}; };
  const Function view = [](const Tensors& in) -> Tensors { return {reshape(in[0], {2, 2})}; };
  const Function identity = [](const Tensors& in) -> Tensors { return {in[0]}; };
  for (const Function& f : {captured, view, identity}) {
    Tensor y = checkpoint(f, {h}, {.reentrant = true})[0];
    CHECK_THROWS_WITH(scale_(y, 5), ContainsSubstring("shares its memory"));
    Tensor seen_from = reshape(y, {1, y.elements()});
    CHECK_THROWS_WITH(scale_(seen_from, 5), ContainsSubstring("shares its memory"));
  }
  CHECK(w.to_vector() == std::vector<double>{3, 4});
  // A tensor that the function made may be overwritten.
  Tensor own = checkpoint(
      [](const Tensors& in) -> Tensors {
        return {reshape(tanh(in[0]), {2, 2})};
      },
      {h}, {.reentrant = true})[0];
  CHECK_NOTHROW(relu_(own));
}

}  // namespace rematch
