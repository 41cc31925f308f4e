#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/dropout.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/layer_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <utility>

#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

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
  nn::Linear tied(layer.parameters()[0], Tensor());
  CHECK(tied.parameters().size() == 1);
  CHECK(same_bits(tied(x), layer(x)));
}

TEST_CASE_METHOD(LedgerScope, "the training switch reaches every layer of a sequence") {
  auto dropout = std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.5);
  auto inner = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{dropout});
  nn::Sequential net({inner});
  const Tensor x = Tensor::ones({8}, DType::float32);
  CHECK_FALSE(same_bits(net(x), x));
  net.set_training(false);
  CHECK_FALSE(net.training());
  CHECK_FALSE(inner->training());
  CHECK_FALSE(dropout->training());
  CHECK(same_bits(net(x), x));
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
  BatchNorm batch(3, DType::float64);
  for (const Tensors& own : {norm.parameters(), rms.parameters(), groups.parameters(),
                             batch.parameters(), Tensors{batch.buffers()[1], batch.buffers()[0]}}) {
    for (const double weight : own[0].to_vector()) CHECK(weight == 1);
    if (own.size() == 1) continue;
    for (const double bias : own[1].to_vector()) CHECK(bias == 0);
  }

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

}  // namespace
}  // namespace rematch
