// The state of optimizers, and what they refuse: golden/numerics has their formulas.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine/nn/optimizer.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

enum class Rule { sgd, momentum, adam };

std::unique_ptr<nn::Optimizer> optimizer(Rule rule, const Tensors& parameters) {
  switch (rule) {
    case Rule::sgd:
      return std::make_unique<nn::Sgd>(parameters, 0.125);
    case Rule::momentum:
      return std::make_unique<nn::Sgd>(parameters, 0.125, 0.75);
    case Rule::adam:
      break;
  }
  return std::make_unique<nn::Adam>(parameters, 0.125);
}

Rule rules() { return GENERATE(Rule::sgd, Rule::momentum, Rule::adam); }

}  // namespace

TEST_CASE_METHOD(LedgerScope, "each parameter has its own state and count of steps") {
  const Rule rule = rules();
  const Tensors parameters{variable({1}, {1}), variable({1}, {1}), variable({1}, {1})};
  const auto trained = optimizer(rule, parameters);
  std::vector<std::vector<double>> weights(parameters.size());
  // Parameter i takes part from step i on, with the gradients that the others had.
  for (std::size_t step = 0; step < 6; ++step) {
    trained->zero_grad();
    for (std::size_t i = 0; i <= std::min(step, std::size_t{2}); ++i) {
      Tensor(parameters[i]).set_grad(tensor({1.0 / static_cast<double>(step - i + 1)}, {1}));
    }
    trained->step();
    for (std::size_t i = 0; i <= std::min(step, std::size_t{2}); ++i) {
      weights[i].push_back(parameters[i].item());
    }
  }
  for (std::vector<double>& w : weights) w.resize(4);
  CHECK(weights[1] == weights[0]);
  CHECK(weights[2] == weights[0]);
}

TEST_CASE_METHOD(LedgerScope, "Adam follows its formula with its own betas and eps, step by step") {
  // Powers of two, so that powers of them are exact however they are computed.
  constexpr double rate = 0.125;
  constexpr double beta1 = 0.5;
  constexpr double beta2 = 0.25;
  constexpr double eps = 0x1p-10;
  Tensor p = variable({1}, {1});
  nn::Adam adam({p}, rate, beta1, beta2, eps);
  double weight = 1;
  double first = 0;
  double second = 0;
  for (int step = 1; step <= 257; ++step) {
    CAPTURE(step);
    const double gradient = (step * 11 % 513 - 200) / 256.0;
    p.set_grad(tensor({gradient}, {1}));
    adam.step();
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * (gradient * gradient);
    const double corrected = rate / (1 - std::ldexp(1.0, -step));
    const double root = std::sqrt(1 - std::ldexp(1.0, -2 * step));
    weight -= corrected * (first / (std::sqrt(second) / root + eps));
    REQUIRE(p.item() == weight);
  }
}

TEST_CASE_METHOD(LedgerScope, "state is made for a parameter with its first gradient, and kept") {
  const Rule rule = rules();
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  Tensors parameters;
  for (std::size_t i = 0; i < n; ++i) parameters.push_back(variable({1, 2}, {2}));
  const auto trained = optimizer(rule, parameters);
  const std::int64_t each = rule == Rule::sgd ? 0 : rule == Rule::momentum ? 16 : 32;
  for (std::size_t i = 0; i < n; ++i) {
    trained->zero_grad();
    parameters[n - 1 - i].set_grad(tensor({1, 1}, {2}));
    ledger().reset_peak();
    trained->step();
    CHECK(ledger().live(Tag::state) == static_cast<std::int64_t>(i + 1) * each);
    CHECK(ledger().peak() == ledger().live());
  }
  trained->step();
  trained->zero_grad();
  for (const Tensor& p : parameters) CHECK_FALSE(p.grad().defined());
  CHECK(ledger().live(Tag::state) == static_cast<std::int64_t>(n) * each);
  CHECK(ledger().live(Tag::gradients) == 0);
  for (std::size_t i = 0; i < n; ++i) CHECK(parameters[i].version() == (i == 0 ? 2 : 1));
}

TEST_CASE_METHOD(LedgerScope, "an optimizer refuses a parameter given twice, or of another dtype") {
  const Rule rule = rules();
  const Tensor p = variable({1, 2}, {2});
  const Tensor other = variable({1, 2}, {2});
  CHECK_THROWS_AS(optimizer(rule, {p, other, p}), std::invalid_argument);
  CHECK_THROWS_AS(optimizer(rule, {p, p.detach()}), std::invalid_argument);
  CHECK_THROWS_AS(optimizer(rule, {p, Tensor::zeros({2}, DType::bfloat16)}), std::invalid_argument);
  CHECK_NOTHROW(optimizer(rule, {p, other}));
  CHECK_NOTHROW(optimizer(rule, {}));
}

}  // namespace rematch
