// nn::Sequential: what it holds, and that it trains as its modules do, checkpointed or not.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::same_bits;
using testing::values_off_zero;
using Modules = std::vector<std::shared_ptr<nn::Module>>;

std::shared_ptr<nn::Linear> square_linear(std::int64_t width, Generator& g) {
  return std::make_shared<nn::Linear>(width, width, true, DType::float64, &g);
}

/// Linears, norms with buffers, draws and activations by turns.
Modules mixed(std::size_t n, Generator& g) {
  Modules modules;
  for (std::size_t i = 0; i < n; ++i) {
    switch (i % 5) {
      case 0:
        modules.push_back(square_linear(3, g));
        break;
      case 1:
        modules.push_back(std::make_shared<nn::BatchNorm>(3, DType::float64));
        break;
      case 2:
        modules.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::tanh));
        break;
      case 3:
        modules.push_back(std::make_shared<nn::RandomLayer>(nn::RandomKind::rrelu));
        break;
      default:
        modules.push_back(std::make_shared<nn::LayerNorm>(3, DType::float64));
    }
  }
  return modules;
}

/// One of every kind of layer there is. No segment may begin with the one that works in place.
Modules of_every_kind(Generator& g, bool in_place) {
  using namespace nn;
  const auto activation = [](ActivationKind kind) { return std::make_shared<Activation>(kind); };
  const auto random = [](RandomKind kind) { return std::make_shared<RandomLayer>(kind, 0.25); };
  return {std::make_shared<Conv2d>(2, 4, 3, 1, 1, true, DType::float32, &g),
          std::make_shared<BatchNorm>(4),
          activation(in_place ? ActivationKind::relu_in_place : ActivationKind::relu),
          std::make_shared<Pool2d>(PoolKind::max, 2, 2),
          random(RandomKind::dropout),
          std::make_shared<Conv2d>(4, 4, 1, 1, 0, false, DType::float32, &g),
          activation(ActivationKind::relu),
          std::make_shared<Pool2d>(PoolKind::average, 2, 1),
          random(RandomKind::gaussian_noise),
          std::make_shared<Flatten>(),
          std::make_shared<Linear>(36, 8, true, DType::float32, &g),
          activation(ActivationKind::gelu),
          std::make_shared<LayerNorm>(8),
          random(RandomKind::rrelu),
          activation(ActivationKind::tanh),
          std::make_shared<Linear>(8, 4, false, DType::float32, &g),
          activation(ActivationKind::sigmoid),
          activation(ActivationKind::softmax)};
}

/// How a step runs its modules.
enum class Way { one_by_one, forward, one_checkpoint, segments };

struct Trained {
  Tensors tensors;
  std::vector<Generator> streams;
};

/// Two steps; returns outputs, gradients, parameters and buffers.
Trained train(Way way, int segments, bool reentrant, bool training) {
  ambient().streams.seed(7);
  Generator g{3, 11, 0};
  nn::Sequential net(of_every_kind(g, segments <= 6));
  net.set_training(training);
  const Tensor x = values_off_zero({3, 2, 8, 8}, 1, DType::float32).set_requires_grad(true);
  nn::Adam adam(net.parameters(), 0.125);
  const CheckpointOptions options{.reentrant = reentrant};
  Trained result;
  for (int step = 0; step < 2; ++step) {
    adam.zero_grad();
    Tensor y = x;
    switch (way) {
      case Way::one_by_one:
        for (const auto& m : net.modules()) y = (*m)(y);
        break;
      case Way::forward:
        y = net(y);
        break;
      case Way::one_checkpoint:
        y = checkpoint(net.function(), {y}, options)[0];
        break;
      case Way::segments:
        y = checkpoint_sequential(net.functions(), segments, {y}, LastSegment::checkpointed,
                                  options)[0];
    }
    backward(sum(mul(y, y)));
    adam.step();
    result.tensors.push_back(y.detach());
  }
  result.tensors.push_back(x.grad());
  CHECK_FALSE(same_bits(x.grad(), Tensor::zeros(x.shape(), x.dtype())));
  for (const Tensor& p : net.parameters()) {
    result.tensors.push_back(p);
    result.tensors.push_back(p.grad());
  }
  result.tensors.insert(result.tensors.end(), net.buffers().begin(), net.buffers().end());
  result.streams = ambient().streams.states();
  return result;
}

void check_same(const Trained& got, const Trained& expected) {
  REQUIRE(got.tensors.size() == expected.tensors.size());
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(got.tensors[i], expected.tensors[i]));
  }
  CHECK(got.streams == expected.streams);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a sequence holds the parameters and buffers of all its modules") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U, 65U, 257U);
  Generator g{3, 11, 0};
  const Modules modules = mixed(n, g);
  nn::Sequential net(modules);
  REQUIRE(net.modules().size() == n);
  std::size_t parameter = 0;
  std::size_t buffer = 0;
  for (std::size_t i = 0; i < n; ++i) {
    CAPTURE(n, i);
    REQUIRE(net.modules()[i] == modules[i]);
    const char* role = "weight";
    for (const Tensor& p : modules[i]->parameters()) {
      REQUIRE(is_same(net.parameters().at(parameter++), p));
      CHECK(p.name() == std::to_string(i) + "." + role);
      role = "bias";
    }
    for (const Tensor& b : modules[i]->buffers()) {
      REQUIRE(is_same(net.buffers().at(buffer++), b));
    }
  }
  CHECK(net.parameters().size() == parameter);
  CHECK(net.buffers().size() == buffer);
  CHECK(net.functions().size() == n);
}

TEST_CASE_METHOD(LedgerScope, "the switches of a sequence reach each of its modules") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U, 65U, 257U);
  Generator g{3, 11, 0};
  nn::Sequential net(mixed(n, g));
  for (const bool on : {false, true}) {
    net.set_training(on);
    net.set_requires_grad(on);
    CHECK(net.training() == on);
    for (const auto& m : net.modules()) {
      CHECK(m->training() == on);
      for (const Tensor& p : m->parameters()) CHECK(p.requires_grad() == on);
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "a sequence runs each of many modules once, in order") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U, 65U, 257U);
  Generator g{3, 11, 0};
  nn::Sequential net(mixed(n, g));
  const Tensor x = values_off_zero({4, 3}, 1);
  const auto run = [&](auto&& way) {
    ambient().streams.seed(7);
    for (const auto& m : net.modules()) {
      for (Tensor b : m->buffers()) scale_(b, 0);
    }
    return way();
  };
  const Tensor expected = run([&] {
    Tensor y = x;
    for (const auto& m : net.modules()) y = (*m)(y);
    return y;
  });
  CHECK(same_bits(run([&] { return net(x); }), expected));
  CHECK(same_bits(run([&] { return net.function()({x})[0]; }), expected));
  CHECK(same_bits(run([&] { return compose(net.functions())({x})[0]; }), expected));
}

TEST_CASE_METHOD(LedgerScope, "sequences in sequences count, switch and name as one does") {
  const int depth = GENERATE(2, 5, 17, 65);
  Generator g{3, 11, 0};
  const auto innermost = square_linear(3, g);
  std::shared_ptr<nn::Module> net = innermost;
  std::string name = "weight";
  for (int i = 0; i < depth; ++i) {
    net = std::make_shared<nn::Sequential>(
        Modules{std::make_shared<nn::BatchNorm>(3, DType::float64), net});
    name = "1." + name;
  }
  CHECK(net->parameters().size() == 2 * static_cast<std::size_t>(depth) + 2);
  CHECK(net->buffers().size() == 2 * static_cast<std::size_t>(depth));
  CHECK(is_same(net->parameters().at(2 * static_cast<std::size_t>(depth)),
                innermost->parameters()[0]));
  CHECK(innermost->parameters()[0].name() == name);
  net->set_training(false);
  CHECK_FALSE(innermost->training());
  net->set_requires_grad(false);
  CHECK_FALSE(innermost->parameters()[1].requires_grad());
}

TEST_CASE_METHOD(LedgerScope, "a parameter that modules share counts once, under its first name") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U);
  Generator g{3, 11, 0};
  const auto first = square_linear(3, g);
  Modules modules{std::make_shared<nn::LayerNorm>(3, DType::float64), first};
  // The weight is shared, the bias is not.
  for (std::size_t i = 0; i < n; ++i) {
    Tensor bias = nn::parameter({3}, DType::float64).set_name("bias");
    modules.push_back(std::make_shared<nn::Linear>(first->parameters()[0], bias));
  }
  const nn::Sequential net(modules);
  REQUIRE(net.parameters().size() == 4 + n);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(net.parameters()[4 + i].name() == std::to_string(2 + i) + ".bias");
  }
  CHECK(first->parameters()[0].name() == "1.weight");
  CHECK(first->parameters()[1].name() == "1.bias");
}

TEST_CASE_METHOD(LedgerScope, "a sequence of every kind of layer trains alike however it is run") {
  const bool training = GENERATE(true, false);
  const Trained expected = train(Way::one_by_one, 0, false, training);
  check_same(train(Way::forward, 0, false, training), expected);
  for (const bool reentrant : {false, true}) {
    CAPTURE(training, reentrant);
    check_same(train(Way::one_checkpoint, 0, reentrant, training), expected);
    for (int k = 1; k <= 18; ++k) {
      CAPTURE(k);
      check_same(train(Way::segments, k, reentrant, training), expected);
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "a module as a function takes exactly one input, whichever it is") {
  const std::size_t n = GENERATE(1U, 2U, 5U, 17U, 65U);
  Generator g{3, 11, 0};
  nn::Sequential net(mixed(n, g));
  const Tensor x = values_off_zero({4, 3}, 1);
  for (const Function& f : net.functions()) {
    CHECK_THROWS_WITH(f({}), ContainsSubstring("one input expected, got 0"));
    CHECK_THROWS_WITH(f({x, x}), ContainsSubstring("one input expected, got 2"));
    CHECK(f({x}).size() == 1);
  }
}

TEST_CASE_METHOD(LedgerScope, "a sequence switches its modules however they stood before") {
  Generator g{3, 11, 0};
  const auto inner = std::make_shared<nn::Sequential>(mixed(2, g));
  nn::Sequential net({square_linear(3, g), inner, mixed(2, g)[1]});
  // Each after what it lies in, which switches it as well.
  Modules all = net.modules();
  all.insert(all.end(), inner->modules().begin(), inner->modules().end());
  for (unsigned before = 0; before < 1U << net.parameters().size(); ++before) {
    for (const bool on : {false, true}) {
      CAPTURE(before, on);
      net.set_training((before >> all.size() & 1U) != 0);
      for (std::size_t i = 0; const auto& m : all) m->set_training((before >> i++ & 1U) != 0);
      for (std::size_t i = 0; Tensor p : net.parameters())
        p.set_requires_grad((before >> i++ & 1U) != 0);
      net.set_training(on);
      net.set_requires_grad(on);
      REQUIRE(net.training() == on);
      for (const auto& m : all) REQUIRE(m->training() == on);
      for (const Tensor& p : net.parameters()) REQUIRE(p.requires_grad() == on);
    }
  }
}

}  // namespace rematch
