#include "engine/nn/layers.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <utility>

#include "engine/autograd/backward.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/dropout.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope, "a linear layer has a weight before a bias, and computes linear()") {
  Generator g{1, 0, 0};
  nn::Linear layer(3, 2, true, DType::float64, &g);
  REQUIRE(layer.parameters().size() == 2);
  CHECK(layer.parameters()[0].shape() == Shape{2, 3});
  CHECK(layer.parameters()[1].shape() == Shape{2});
  CHECK(ledger().live(Tag::parameters) == 8 * 8);
  for (const Tensor& p : layer.parameters()) {
    CHECK(p.requires_grad());
    // PyTorch's default range: +- 1 / sqrt(in).
    for (const double v : p.to_vector()) CHECK(std::abs(v) <= 1 / std::sqrt(3.0));
  }
  const Tensor x = values_off_zero({4, 3}, 1);
  CHECK(same_bits(layer(x), linear(x, layer.parameters()[0], layer.parameters()[1])));
}

TEST_CASE_METHOD(LedgerScope, "a layer without bias has one parameter") {
  Generator g{1, 0, 0};
  nn::Linear layer(3, 2, false, DType::float64, &g);
  CHECK(layer.parameters().size() == 1);
  const Tensor x = values_off_zero({4, 3}, 1);
  CHECK(same_bits(layer(x), linear(x, layer.parameters()[0])));
}

TEST_CASE_METHOD(LedgerScope, "equal generators initialise equal layers, whatever their streams") {
  Generator a{1, 4, 0};
  Generator b{1, 4, 0};
  const nn::Conv2d first(2, 3, 3, 1, 0, true, DType::float32, &a);
  const nn::Conv2d second(2, 3, 3, 1, 0, true, DType::float32, &b);
  const nn::Conv2d third(2, 3, 3, 1, 0, true, DType::float32, &b);
  CHECK(same_bits(first.parameters()[0], second.parameters()[0]));
  CHECK_FALSE(same_bits(first.parameters()[0], third.parameters()[0]));
}

TEST_CASE_METHOD(LedgerScope, "each layer computes its op with the arguments that it was given") {
  using namespace nn;
  const Tensor x = values_off_zero({2, 3, 7, 7}, 1);
  const auto check = [](Module& layer, const Tensor& in, const Tensor& expected) {
    CHECK(same_bits(layer(in), expected));
    CHECK(same_bits(layer.function()({in})[0], expected));
  };
  Generator g{1, 0, 0};
  for (const bool bias : {true, false}) {
    Conv2d conv(3, 4, 3, 2, 1, bias, DType::float64, &g);
    REQUIRE(conv.parameters().size() == (bias ? 2 : 1));
    for (const Tensor& p : conv.parameters()) {
      // PyTorch's default range: +- 1 / sqrt(in channels * kernel * kernel).
      for (const double v : p.to_vector()) CHECK(std::abs(v) <= 1 / std::sqrt(27.0));
    }
    const Tensor b = bias ? conv.parameters()[1] : Tensor();
    const Tensor expected = conv2d(x, conv.parameters()[0], b, 2, 1);
    check(conv, x, expected);
    Conv2d tied(conv.parameters()[0], b, 2, 1);
    CHECK(tied.parameters().size() == conv.parameters().size());
    check(tied, x, expected);
  }
  Pool2d max(PoolKind::max, 3, 2, 1);
  check(max, x, max_pool2d(x, 3, 2, 1));
  Pool2d average(PoolKind::average, 2, 3);
  check(average, x, avg_pool2d(x, 2, 3, 0));
  Flatten flat;
  check(flat, x, reshape(x, {2, 147}));
  LayerNorm norm(7, DType::float64);
  check(norm, x, layer_norm(x, norm.parameters()[0], norm.parameters()[1]));
  RmsNorm rms(7, DType::float64);
  REQUIRE(rms.parameters().size() == 1);
  check(rms, x, rms_norm(x, rms.parameters()[0]));
  const Tensor four = values_off_zero({2, 4, 3, 3}, 2);
  GroupNorm groups(2, 4, DType::float64);
  check(groups, four, group_norm(four, 2, groups.parameters()[0], groups.parameters()[1]));

  const std::pair<ActivationKind, Tensor> activations[] = {
      {ActivationKind::relu, relu(x)},       {ActivationKind::gelu, gelu(x)},
      {ActivationKind::silu, silu(x)},       {ActivationKind::tanh, tanh(x)},
      {ActivationKind::sigmoid, sigmoid(x)}, {ActivationKind::softmax, softmax(x)},
  };
  for (const auto& [kind, expected] : activations) {
    Activation layer(kind);
    check(layer, x, expected);
  }
  Tensor written = x.clone();
  Activation in_place(ActivationKind::relu_in_place);
  CHECK(is_same(in_place(written), written));
  CHECK(same_bits(written, relu(x)));
}

TEST_CASE_METHOD(LedgerScope, "each random layer draws in training alone, by its amount") {
  using nn::RandomKind;
  const Tensor x = values_off_zero({64}, 1);
  const auto drawn = [](const auto& draw) {
    ambient().streams.seed(7);
    return draw();
  };
  const auto check = [&](RandomKind kind, double amount, const auto& op, const Tensor& evaluated) {
    nn::RandomLayer layer(kind, amount);
    CHECK(same_bits(drawn([&] { return layer(x); }), drawn(op)));
    CHECK(ambient().streams.at(0).offset == 64);
    layer.set_training(false);
    CHECK(same_bits(drawn([&] { return layer(x); }), evaluated));
    CHECK(ambient().streams.at(0).offset == 0);
  };
  check(
      RandomKind::dropout, 0.25, [&] { return dropout(x, 0.25); }, x);
  check(
      RandomKind::rrelu, 0, [&] { return rrelu(x, 1.0 / 8, 1.0 / 3); },
      leaky_relu(x, (1.0 / 8 + 1.0 / 3) / 2));
  check(
      RandomKind::gaussian_noise, 0.5, [&] { return gaussian_noise(x, 0.5); }, x);
}

TEST_CASE_METHOD(LedgerScope, "a tied layer adds its gradient to the parameter it shares") {
  Generator g{1, 0, 0};
  auto first = std::make_shared<nn::Linear>(2, 2, true, DType::float64, &g);
  auto second = std::make_shared<nn::Linear>(first->parameters()[0], Tensor());
  nn::Sequential net({first, second});
  SECTION("which counts once among the parameters of the model") {
    REQUIRE(net.parameters().size() == 2);
    CHECK(is_same(net.parameters()[0], first->parameters()[0]));
  }
  SECTION("and an optimizer updates it once") {
    const Tensor weight = net.parameters()[0];
    const Tensor before = weight.clone();
    backward(sum(net(tensor({1, 2}, {1, 2}))));
    const Tensor gradient = weight.grad().clone();
    nn::Sgd(net.parameters(), 0.5).step();
    for (std::int64_t i = 0; i < 4; ++i) {
      CHECK(weight.at(i) == before.at(i) - 0.5 * gradient.at(i));
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "the training switch reaches every layer of a sequence") {
  auto dropout = std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.5);
  auto inner = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{dropout});
  nn::Sequential net({inner});
  const Tensor x = Tensor::ones({8}, DType::float32);
  CHECK_FALSE(same_bits(net(x), x));
  net.set_training(false);
  CHECK_FALSE(dropout->training());
  CHECK(same_bits(net(x), x));
}

TEST_CASE_METHOD(LedgerScope, "batch norm carries running statistics, which are no parameters") {
  nn::BatchNorm layer(2, DType::float64);
  CHECK(layer.parameters().size() == 2);
  REQUIRE(layer.buffers().size() == 2);
  CHECK(ledger().live(Tag::state) == 32);
  const Tensor x = tensor({1, 2, 3, 6}, {2, 2});
  layer(x);
  // 0.9 * 0 + 0.1 * mean, and 0.9 * 1 + 0.1 * unbiased variance, in the kernel's rounding: the
  // products and the sum are each within half an ulp of 1.
  const Values mean{0.2, 0.4};
  const Values var{1.1, 1.7};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto j = static_cast<std::int64_t>(i);
    CHECK(std::abs(layer.buffers()[0].at(j) - mean[i]) <= 3 * 0x1p-52);
    CHECK(std::abs(layer.buffers()[1].at(j) - var[i]) <= 3 * 0x1p-52);
    CHECK_FALSE(layer.buffers()[i].requires_grad());
  }
  const Tensor stored = layer.buffers()[0].clone();
  layer.set_training(false);
  layer(x);
  CHECK(same_bits(layer.buffers()[0], stored));
}

TEST_CASE_METHOD(LedgerScope, "frozen parameters get no gradient") {
  Generator g{1, 0, 0};
  auto frozen = std::make_shared<nn::Linear>(2, 2, true, DType::float64, &g);
  auto trained = std::make_shared<nn::Linear>(2, 2, true, DType::float64, &g);
  frozen->set_requires_grad(false);
  nn::Sequential net({frozen, trained});
  backward(sum(net(tensor({1, 2}, {1, 2}))));
  CHECK_FALSE(frozen->parameters()[0].grad().defined());
  CHECK(trained->parameters()[0].grad().defined());
}

TEST_CASE_METHOD(LedgerScope, "the in-place activation writes to what the layer before it made") {
  Generator g{1, 0, 0};
  auto linear_layer = std::make_shared<nn::Linear>(3, 4, true, DType::float64, &g);
  nn::Sequential in_place(
      {linear_layer, std::make_shared<nn::Activation>(nn::ActivationKind::relu_in_place)});
  nn::Sequential apart({linear_layer, std::make_shared<nn::Activation>(nn::ActivationKind::relu)});
  const Tensor x = values_off_zero({2, 3}, 3);
  ledger().reset_peak();
  const std::int64_t before = ledger().live();
  const Tensor a = in_place(x);
  CHECK(ledger().live() - before == a.bytes());
  const Tensor b = apart(x);
  CHECK(same_bits(a, b));
  backward(sum(a));
  const Tensor gradient = linear_layer->parameters()[0].grad().clone();
  linear_layer->parameters()[0].clone();
  Tensor weight = linear_layer->parameters()[0];
  weight.set_grad({});
  backward(sum(b));
  CHECK(same_bits(weight.grad(), gradient));
}

TEST_CASE_METHOD(LedgerScope, "an optimizer leaves parameters without a gradient alone") {
  const bool adam = GENERATE(false, true);
  Tensor with = testing::variable({1}, {1});
  Tensor without = testing::variable({1}, {1});
  std::unique_ptr<nn::Optimizer> optimizer;
  if (adam) {
    optimizer = std::make_unique<nn::Adam>(Tensors{without, with}, 0.5);
  } else {
    optimizer = std::make_unique<nn::Sgd>(Tensors{without, with}, 0.5, 0.5);
  }
  with.set_grad(tensor({1}, {1}));
  optimizer->step();
  CHECK(with.at(0) != 1);
  CHECK(with.version() == 1);
  CHECK(without.at(0) == 1);
  CHECK(without.version() == 0);
  // State is made for what is updated, and only then.
  CHECK(ledger().live(Tag::state) == (adam ? 16 : 8));
  optimizer->zero_grad();
  CHECK_FALSE(with.grad().defined());
}

TEST_CASE_METHOD(LedgerScope, "a step between forward and backward is noticed by the graph") {
  Tensor w = testing::variable({3}, {1});
  const Tensor x = testing::variable({2}, {1});
  const Tensor y = mul(w, x);
  w.set_grad(tensor({1}, {1}));
  nn::Sgd({w}, 0.5).step();
  CHECK_THROWS_AS(backward(y), std::runtime_error);
}

}  // namespace
}  // namespace rematch
