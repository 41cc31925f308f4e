// Optimizers over many parameters and many steps, held to the formulas, element by element.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine/nn/optimizer.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::tensor;

enum class Rule { sgd, momentum, adam };

constexpr double kRate = 0.125;
constexpr double kMomentum = 0.75;
/// Powers of two, so that powers of them are exact however they are computed.
constexpr double kBeta1 = 0.5;
constexpr double kBeta2 = 0.25;
constexpr double kEps = 0x1p-10;

std::unique_ptr<nn::Optimizer> optimizer(Rule rule, const Tensors& parameters) {
  switch (rule) {
    case Rule::sgd:
      return std::make_unique<nn::Sgd>(parameters, kRate);
    case Rule::momentum:
      return std::make_unique<nn::Sgd>(parameters, kRate, kMomentum);
    case Rule::adam:
      break;
  }
  return std::make_unique<nn::Adam>(parameters, kRate, kBeta1, kBeta2, kEps);
}

/// One weight, as the papers have it. T is the dtype; each line rounds where the engine does.
template <class T>
struct Scalar {
  T weight = 0;
  T first = 0;
  T second = 0;
  int steps = 0;

  void step(Rule rule, T gradient) {
    ++steps;
    if (rule == Rule::sgd) {
      weight -= static_cast<T>(kRate) * gradient;
    } else if (rule == Rule::momentum) {
      // PyTorch's first buffer is the gradient, which 0.75 * 0 + gradient is, too.
      first = static_cast<T>(kMomentum) * first + gradient;
      weight -= static_cast<T>(kRate) * first;
    } else {
      first = static_cast<T>(kBeta1) * first + static_cast<T>(1 - kBeta1) * gradient;
      second = static_cast<T>(kBeta2) * second + static_cast<T>(1 - kBeta2) * (gradient * gradient);
      // Bias corrections, each rounded once.
      const auto rate = static_cast<T>(kRate / (1 - std::ldexp(1.0, -steps)));
      const auto root = static_cast<T>(std::sqrt(1 - std::ldexp(1.0, -2 * steps)));
      weight -= rate * (first / (std::sqrt(second) / root + static_cast<T>(kEps)));
    }
  }
};

template <class T>
Tensor one(T value) {
  return tensor({static_cast<double>(value)}, {1}, dtype_of<T>());
}

/// A gradient that no other parameter and no other step has.
double gradient_of(std::size_t parameter, int step) {
  return static_cast<double>(static_cast<std::int64_t>(parameter * 37) + step * 11 % 513 - 200) /
         256;
}

/// Trains n parameters for some steps, of which each takes part in those that `takes_part` says,
/// and compares every weight after every step with the formula.
template <class T>
void check_training(Rule rule, std::size_t n, int steps,
                    const std::function<bool(std::size_t, int)>& takes_part) {
  Tensors parameters;
  std::vector<Scalar<T>> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    expected[i].weight = static_cast<T>(1 + static_cast<double>(i) / 64);
    parameters.push_back(one(expected[i].weight).set_requires_grad(true));
  }
  const auto trained = optimizer(rule, parameters);
  for (int step = 0; step < steps; ++step) {
    trained->zero_grad();
    for (std::size_t i = 0; i < n; ++i) {
      if (!takes_part(i, step)) continue;
      const auto gradient = static_cast<T>(gradient_of(i, step));
      parameters[i].set_grad(one(gradient));
      expected[i].step(rule, gradient);
    }
    trained->step();
    for (std::size_t i = 0; i < n; ++i) {
      if (parameters[i].at(0) == static_cast<double>(expected[i].weight)) continue;
      FAIL("parameter " << i << " after step " << step << " is " << parameters[i].at(0)
                        << " instead of " << expected[i].weight);
    }
  }
  SUCCEED();
}

void check_training(Rule rule, DType dtype, std::size_t n, int steps,
                    const std::function<bool(std::size_t, int)>& takes_part) {
  CAPTURE(static_cast<int>(rule), to_string(dtype), n, steps);
  if (dtype == DType::float64) return check_training<double>(rule, n, steps, takes_part);
  check_training<float>(rule, n, steps, takes_part);
}

Rule rules() { return GENERATE(Rule::sgd, Rule::momentum, Rule::adam); }
DType dtypes() { return GENERATE(DType::float32, DType::float64); }

}  // namespace

TEST_CASE_METHOD(LedgerScope, "each of many parameters has its own state and count of steps") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  // Parameter i gets its first gradient in step i modulo 7, and none in every fifth step.
  check_training(rules(), dtypes(), n, 20, [](std::size_t i, int step) {
    return step >= static_cast<int>(i % 7) && (step + static_cast<int>(i)) % 5 != 4;
  });
}

TEST_CASE_METHOD(LedgerScope, "tens of thousands of parameters are all updated") {
  check_training(rules(), DType::float32, 65537, 2,
                 [](std::size_t i, int step) { return step == 1 || i % 3 == 0; });
}

TEST_CASE_METHOD(LedgerScope, "every one of many steps follows the formula") {
  const int steps = GENERATE(257, 65537);
  check_training(rules(), dtypes(), 2, steps,
                 [](std::size_t i, int step) { return i == 0 || step > 200; });
}

TEST_CASE_METHOD(LedgerScope, "every element of a parameter follows the formula") {
  const Rule rule = rules();
  const std::int64_t n = GENERATE(1, 2, 17, 257, 65537);
  std::vector<double> weights;
  std::vector<Scalar<double>> expected(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    weights.push_back(static_cast<double>(i) / 64);
    expected[static_cast<std::size_t>(i)].weight = weights.back();
  }
  Tensor w = Tensor::from(weights, {n}, DType::float64).set_requires_grad(true);
  const auto trained = optimizer(rule, {w});
  for (int step = 0; step < 3; ++step) {
    std::vector<double> gradient;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      gradient.push_back(gradient_of(i, step));
      expected[i].step(rule, gradient.back());
    }
    w.set_grad(Tensor::from(gradient, {n}, DType::float64));
    trained->step();
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (w.at(i) != expected[static_cast<std::size_t>(i)].weight) FAIL("element " << i);
  }
}

TEST_CASE_METHOD(LedgerScope, "state is made for a parameter with its first gradient, and kept") {
  const Rule rule = rules();
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  Tensors parameters;
  for (std::size_t i = 0; i < n; ++i) parameters.push_back(testing::variable({1, 2}, {2}));
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
  const Tensor p = testing::variable({1, 2}, {2});
  const Tensor other = testing::variable({1, 2}, {2});
  CHECK_THROWS_AS(optimizer(rule, {p, other, p}), std::invalid_argument);
  CHECK_THROWS_AS(optimizer(rule, {p, p.detach()}), std::invalid_argument);
  CHECK_THROWS_AS(optimizer(rule, {p, Tensor::zeros({2}, DType::bfloat16)}), std::invalid_argument);
  CHECK_NOTHROW(optimizer(rule, {p, other}));
  CHECK_NOTHROW(optimizer(rule, {}));
}

}  // namespace rematch
