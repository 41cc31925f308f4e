#include "engine/ops/recurrent.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/cpu/threads.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/join.h"
#include "engine/ops/linear.h"
#include "engine/ops/view.h"
#include "engine/testing/finite_differences.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;

using RecurrentLayer = Tensor (*)(const Tensor&, const RecurrentParameters&);

RecurrentParameters parameters(std::int64_t gates, std::int64_t width, std::int64_t features,
                               bool bias) {
  const std::int64_t rows = gates * features;
  RecurrentParameters p{values_off_zero({rows, width}, 2), values_off_zero({rows, features}, 3)};
  if (bias) {
    p.input_bias = values_off_zero({rows}, 4);
    p.hidden_bias = values_off_zero({rows}, 5);
  }
  return p;
}

Tensor minus(const Tensor& a, const Tensor& b) { return add(a, scale(b, -1)); }

/// Columns [first, first + count) of x.
Tensor columns(const Tensor& x, std::int64_t first, std::int64_t count) {
  const Tensor rest = first > 0 ? split(x, first, 1)[1] : x;
  return count < rest.shape()[1] ? split(rest, count, 1)[0] : rest;
}

struct Carried {
  Tensor h;
  Tensor c;
};

/// One step in other ops, in the order of torch.nn.GRU's and LSTM's documentation.
Carried step(bool lstm, const Tensor& x, const Carried& before, const RecurrentParameters& p) {
  const std::int64_t features = p.hidden.shape()[1];
  const Tensor in = linear(x, p.input, p.input_bias);
  const Tensor own = linear(before.h, p.hidden, p.hidden_bias);
  const auto part = [&](const Tensor& of, std::int64_t g) {
    return columns(of, g * features, features);
  };
  const auto gate = [&](std::int64_t g) { return add(part(in, g), part(own, g)); };
  if (lstm) {
    const Tensor kept = mul(sigmoid(gate(1)), before.c);
    const Tensor c = add(kept, mul(sigmoid(gate(0)), tanh(gate(2))));
    return {mul(sigmoid(gate(3)), tanh(c)), c};
  }
  const Tensor n = tanh(add(part(in, 2), mul(sigmoid(gate(0)), part(own, 2))));
  return {add(n, mul(sigmoid(gate(1)), minus(before.h, n))), {}};
}

Tensor in_steps(bool lstm, const Tensor& x, const RecurrentParameters& p) {
  const std::int64_t batch = x.shape()[0];
  const std::int64_t steps = x.shape()[1];
  const std::int64_t width = x.shape()[2];
  const std::int64_t features = p.hidden.shape()[1];
  const Tensor flat = reshape(x, {batch, steps * width});
  const Tensor zeros = Tensor::zeros({batch, features}, x.dtype());
  Carried at{zeros, zeros};
  Tensor y;
  for (std::int64_t t = 0; t < steps; ++t) {
    at = step(lstm, columns(flat, t * width, width), at, p);
    y = t == 0 ? at.h : concat(y, at.h);
  }
  return reshape(y, {batch, steps, features});
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer computes what its steps do, op by op") {
  const bool lstm = GENERATE(false, true);
  const bool bias = GENERATE(false, true);
  const auto [batch, steps, width, features] =
      GENERATE(std::array<std::int64_t, 4>{1, 1, 1, 1}, std::array<std::int64_t, 4>{2, 3, 4, 5},
               std::array<std::int64_t, 4>{9, 1, 2, 3}, std::array<std::int64_t, 4>{12, 5, 3, 17});
  const RecurrentParameters p = parameters(lstm ? 4 : 3, width, features, bias);
  const Tensor x = values_off_zero({batch, steps, width}, 1);
  CHECK(same_bits(lstm ? rematch::lstm(x, p) : gru(x, p), in_steps(lstm, x, p)));
}

/// Bounds on the magnitudes of a number and of its derivatives along one element of the inputs.
struct Jet {
  double value = 0;
  double first = 0;
  double second = 0;
  double third = 0;
};

Jet operator+(const Jet& a, const Jet& b) {
  return {a.value + b.value, a.first + b.first, a.second + b.second, a.third + b.third};
}

Jet operator*(const Jet& a, const Jet& b) {
  return {a.value * b.value, a.first * b.value + a.value * b.first,
          a.second * b.value + 2 * a.first * b.first + a.value * b.second,
          a.third * b.value + 3 * a.second * b.first + 3 * a.first * b.second + a.value * b.third};
}

Jet times(double n, const Jet& a) { return Jet{n, 0, 0, 0} * a; }

/// f(x), by the chain rule, where f has these bounds everywhere.
Jet function(const Jet& f, const Jet& x) {
  return {f.value, f.first * x.first, f.second * x.first * x.first + f.first * x.second,
          f.third * x.first * x.first * x.first + 3 * f.second * x.first * x.second +
              f.first * x.third};
}

constexpr Jet kSigmoid{1, 0.25, 0.1, 0.125};
constexpr Jet kTanh{1, 1, 0.77, 2};

/// The states that a layer ends with. Each element counts as if it were the one that changes.
Jet last_state(bool lstm, std::int64_t steps, double width, double features) {
  constexpr Jet kElement{1.5, 1, 0, 0};
  Jet h{};
  Jet c{};
  for (std::int64_t t = 0; t < steps; ++t) {
    const Jet own = times(features, kElement * h) + kElement;
    const Jet in = times(width, kElement * kElement) + kElement;
    const Jet gate = function(kSigmoid, in + own);
    if (lstm) {
      c = gate * c + gate * function(kTanh, in + own);
      h = gate * function(kTanh, c);
    } else {
      const Jet n = function(kTanh, in + gate * own);
      h = n + gate * (h + n);
      // It is a mean of states.
      h.value = 1;
    }
  }
  return h;
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer's gradients are its differences") {
  const bool lstm = GENERATE(false, true);
  const auto [batch, steps, width, features] =
      GENERATE(std::array<std::int64_t, 4>{1, 1, 1, 1}, std::array<std::int64_t, 4>{2, 2, 1, 2},
               std::array<std::int64_t, 4>{1, 3, 2, 1});
  const RecurrentParameters p = parameters(lstm ? 4 : 3, width, features, true);
  const Tensor x = values_off_zero({batch, steps, width}, 1);
  const Jet last =
      last_state(lstm, steps, static_cast<double>(width), static_cast<double>(features));
  // A gate's sum has width + features products and two biases below 2.25 each, and a rounding for
  // each of them; a function has 16, and each of five a step lets an error through at most once.
  const double terms = static_cast<double>(width + features + 2);
  const testing::Accuracy accuracy{last.third, 2.25 * terms,
                                   static_cast<double>(steps) * 5 * (2 * terms + 16)};
  const RecurrentLayer layer = lstm ? rematch::lstm : gru;
  testing::check_gradients(
      [=](const Tensors& in) {
        return Tensors{layer(in[0], {in[1], in[2], in[3], in[4]})};
      },
      {x, p.input, p.hidden, p.input_bias, p.hidden_bias}, accuracy);
  testing::check_gradients(
      [=](const Tensors& in) {
        return Tensors{layer(in[0], {in[1], in[2]})};
      },
      {x, p.input, p.hidden}, accuracy);
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer saves what its gradients read") {
  const bool lstm = GENERATE(false, true);
  const bool frozen = GENERATE(false, true);
  constexpr std::int64_t kStates = 2 * 3 * 5;
  RecurrentParameters p = parameters(lstm ? 4 : 3, 7, 5, true);
  for (Tensor* t : {&p.input, &p.hidden, &p.input_bias, &p.hidden_bias}) {
    t->set_requires_grad(!frozen);
  }
  const Tensor x = values_off_zero({2, 3, 7}, 1).set_requires_grad(frozen);
  const Tensor y = lstm ? rematch::lstm(x, p) : gru(x, p);
  const std::int64_t operand = (frozen ? p.input.elements() : x.elements()) + p.hidden.elements();
  CHECK(ledger().live(Tag::saved) == 8 * (operand + (lstm ? 6 : 5) * kStates));
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer has the same bits on every number of threads") {
  const bool lstm = GENERATE(false, true);
  const RecurrentParameters p = parameters(lstm ? 4 : 3, 40, 64, true);
  const auto with = [&](int threads) {
    const cpu::ThreadsScope scope(threads);
    const Tensor x = values_off_zero({150, 12, 40}, 1).set_requires_grad(true);
    const Tensor w = p.hidden.detach().set_requires_grad(true);
    const RecurrentParameters own{p.input, w, p.input_bias, p.hidden_bias};
    const Tensor y = lstm ? rematch::lstm(x, own) : gru(x, own);
    backward(sum(mul(y, y)));
    return std::array{y.to_vector(), x.grad().to_vector(), w.grad().to_vector()};
  };
  CHECK(with(1) == with(3));
}

TEST_CASE_METHOD(LedgerScope, "a recurrent layer says which parameter does not fit") {
  const Tensor x = values_off_zero({2, 3, 7}, 1);
  RecurrentParameters p = parameters(3, 7, 5, true);
  CHECK_THROWS_AS(lstm(x, p), std::invalid_argument);
  p.hidden_bias = {};
  CHECK_THROWS_AS(gru(x, p), std::invalid_argument);
  CHECK_THROWS_AS(gru(values_off_zero({3, 7}, 1), parameters(3, 7, 5, true)),
                  std::invalid_argument);
  CHECK_THROWS_AS(gru(x, parameters(3, 6, 5, true)), std::invalid_argument);
}

}  // namespace
}  // namespace rematch
