#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/join.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/spectral_norm.h"
#include "engine/testing/finite_differences.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

// Vjps of products and norms against central differences, for all choices of operands that require
// grad. Inputs have magnitude in [1/8, 3/2), so a product of two is below 9/4. An op that is linear
// in each single element has no truncation error: its third derivatives along one element are zero.

namespace rematch {
namespace {

using testing::check_gradient_of_both_operands;
using testing::check_gradients;
using testing::gradient_mismatches;
using testing::LedgerScope;
using testing::tensor;
using testing::values_off_zero;

double count(std::int64_t n) { return static_cast<double>(n); }

TEST_CASE_METHOD(LedgerScope, "linear's gradients are its differences") {
  const auto [n, k, m] =
      GENERATE(std::array<std::int64_t, 3>{1, 1, 1}, std::array<std::int64_t, 3>{2, 3, 4},
               std::array<std::int64_t, 3>{5, 9, 2});
  const Tensor x = values_off_zero({n, k}, 1);
  const Tensor w = values_off_zero({m, k}, 2);
  const Tensor b = values_off_zero({m}, 3);
  // k products, each with its addition, and the bias.
  const testing::Accuracy accuracy{0, count(k + 1) * 2.25, count(2 * k + 1)};
  check_gradients([](const Tensors& in) { return Tensors{linear(in[0], in[1], in[2])}; }, {x, w, b},
                  accuracy);
  check_gradients([](const Tensors& in) { return Tensors{linear(in[0], in[1])}; }, {x, w},
                  accuracy);
}

TEST_CASE_METHOD(LedgerScope, "linear's gradient is right when input and weight are one tensor") {
  // Quadratic in each element; the third derivative is zero still.
  check_gradient_of_both_operands([](const Tensors& in) { return Tensors{linear(in[0], in[1])}; },
                                  values_off_zero({3, 4}, 4), {0, 4 * 2.25, 8});
}

TEST_CASE_METHOD(LedgerScope, "a product of no features is its bias") {
  const Tensor y = linear(tensor({}, {2, 0}), tensor({}, {3, 0}), tensor({1, 2, 3}, {3}));
  CHECK(y.to_vector() == std::vector<double>{1, 2, 3, 1, 2, 3});
}

struct Convolution {
  Shape x;
  Shape w;
  std::int64_t stride;
  std::int64_t padding;
};

TEST_CASE_METHOD(LedgerScope, "conv2d's gradients are its differences") {
  const Convolution c = GENERATE(
      Convolution{{1, 1, 3, 3}, {1, 1, 1, 1}, 1, 0}, Convolution{{2, 2, 4, 3}, {3, 2, 3, 2}, 1, 0},
      Convolution{{1, 2, 3, 4}, {2, 2, 3, 3}, 1, 1}, Convolution{{2, 1, 5, 6}, {2, 1, 2, 3}, 2, 0},
      Convolution{{1, 2, 5, 4}, {1, 2, 3, 3}, 2, 1}, Convolution{{1, 1, 2, 2}, {1, 1, 3, 3}, 3, 2});
  const Tensor x = values_off_zero(c.x, 5);
  const Tensor w = values_off_zero(c.w, 6);
  const Tensor b = values_off_zero({c.w[0]}, 7);
  const std::int64_t terms = c.w[1] * c.w[2] * c.w[3];
  const testing::Accuracy accuracy{0, count(terms + 1) * 2.25, count(2 * terms + 1)};
  check_gradients(
      [&](const Tensors& in) { return Tensors{conv2d(in[0], in[1], in[2], c.stride, c.padding)}; },
      {x, w, b}, accuracy);
  check_gradients(
      [&](const Tensors& in) { return Tensors{conv2d(in[0], in[1], {}, c.stride, c.padding)}; },
      {x, w}, accuracy);
}

// With invstd = s, centred values c and n values, y = c s w. Along one element, dc/dx is at most 1
// and ds/dx = -s^2 xhat / n with |xhat| <= sqrt(n), so every derivative brings a factor of at most
// s (1 + sqrt(n)) and the product rule at most doubles the number of terms each time:
// |y'''| <= 8 |w| sqrt(n) (s (1 + sqrt(n)))^3.
double third_derivative_of_norm(std::int64_t n, double invstd) {
  const double root = std::sqrt(count(n));
  return 8 * 1.5 * root * std::pow(invstd * (1 + root), 3);
}

TEST_CASE_METHOD(LedgerScope, "batch_norm's gradients are its differences") {
  const Shape shape = GENERATE(Shape{5, 2}, Shape{3, 2, 2, 2}, Shape{2, 3}, Shape{4, 1, 1, 3});
  const bool train = GENERATE(true, false);
  const std::int64_t c = shape[1];
  const std::int64_t n = shape.elements() / c;
  const Tensor x = values_off_zero(shape, 9);
  const Tensor w = values_off_zero({c}, 10);
  const Tensor b = values_off_zero({c}, 11);
  // Within 2^-17 of these values no channel's deviation is below 1/8, which the check demands.
  double invstd = 0;
  for (std::int64_t j = 0; j < c; ++j) {
    double sum = 0;
    double squares = 0;
    const std::int64_t inner = n / shape[0];
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      for (std::int64_t s = 0; s < inner; ++s) {
        const double value = x.at((i * c + j) * inner + s);
        sum += value;
        squares += value * value;
      }
    }
    const double variance = squares / count(n) - sum / count(n) * sum / count(n);
    REQUIRE(variance > 1.0 / 64);
    invstd = std::max(invstd, 1 / std::sqrt(variance));
  }
  if (!train) invstd = 1;
  check_gradients(
      [&](const Tensors& in) {
        Tensor mean = Tensor::full({c}, DType::float64, 0.25);
        Tensor var = Tensor::full({c}, DType::float64, 1.0);
        return Tensors{batch_norm(in[0], in[1], in[2], mean, var, {.train = train})};
      },
      {x, w, b},
      // Each value is centred (n additions), scaled by a deviation (2n more) and by the weight.
      {train ? third_derivative_of_norm(n, invstd) : 0, 1.5 + 1.5 * 3 * invstd, count(3 * n + 8)});
}

/// Sets of d values that are equidistant up to order (7 is prime to every d here), 1/4 apart: their
/// deviation is sqrt((d^2 - 1) / 12) / 4.
Tensor equidistant(const Shape& shape, std::int64_t d) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    values.push_back(static_cast<double>(i * 7 % d) / 4);
  }
  return Tensor::from(values, shape, DType::float64);
}
/// Each value is centred (d additions), scaled by a deviation (2 d more) and by the weight.
testing::Accuracy accuracy_of_norm(std::int64_t d) {
  const double invstd = 4 / std::sqrt(count(d * d - 1) / 12);
  return {third_derivative_of_norm(d, invstd), 1.5 + 1.5 * 3 * invstd, count(3 * d + 8)};
}

TEST_CASE_METHOD(LedgerScope, "layer_norm's gradients are its differences") {
  const Shape shape = GENERATE(Shape{6}, Shape{3, 4}, Shape{2, 2, 5});
  const std::int64_t d = shape[shape.rank() - 1];
  check_gradients([](const Tensors& in) { return Tensors{layer_norm(in[0], in[1], in[2])}; },
                  {equidistant(shape, d), values_off_zero({d}, 12), values_off_zero({d}, 13)},
                  accuracy_of_norm(d));
}

TEST_CASE_METHOD(LedgerScope, "group_norm's gradients are its differences") {
  const auto [shape, groups] = GENERATE(
      std::pair{Shape{3, 4}, 1}, std::pair{Shape{2, 6}, 2}, std::pair{Shape{2, 2, 1, 3}, 2},
      std::pair{Shape{2, 3, 2, 1}, 1}, std::pair{Shape{1, 4, 1, 2}, 2});
  const std::int64_t c = shape[1];
  const std::int64_t d = shape.elements() / (shape[0] * groups);
  check_gradients(
      [groups = groups](const Tensors& in) {
        return Tensors{group_norm(in[0], groups, in[1], in[2])};
      },
      {equidistant(shape, d), values_off_zero({c}, 12), values_off_zero({c}, 13)},
      accuracy_of_norm(d));
}

TEST_CASE_METHOD(LedgerScope, "rms_norm's gradients are its differences") {
  const Shape shape = GENERATE(Shape{1}, Shape{6}, Shape{3, 4}, Shape{2, 2, 5});
  const std::int64_t d = shape[shape.rank() - 1];
  // No value is below 1/8, and so no root of a mean square is: what holds of values that are
  // centred holds of those that need not be.
  check_gradients([](const Tensors& in) { return Tensors{rms_norm(in[0], in[1])}; },
                  {values_off_zero(shape, 12), values_off_zero({d}, 13)},
                  {third_derivative_of_norm(d, 8), 1.5 * 1.5 * 8, count(2 * d + 8)});
}

TEST_CASE_METHOD(LedgerScope, "spectral_norm's gradients are its differences in evaluation") {
  const auto [n, k, m] =
      GENERATE(std::array<std::int64_t, 3>{1, 1, 1}, std::array<std::int64_t, 3>{2, 3, 4},
               std::array<std::int64_t, 3>{5, 4, 2});
  // All have one sign, so that sigma is the sum of magnitudes.
  std::vector<double> positive = values_off_zero({m, k}, 23).to_vector();
  for (double& value : positive) value = std::fabs(value);
  Tensor u = Tensor::full({m}, DType::float64, 0.5);
  Tensor v = Tensor::full({k}, DType::float64, 1);
  const double sigma = std::accumulate(positive.begin(), positive.end(), 0.0) / 2;
  // Along an element of the weight y = (a + x t) / (sigma + t / 2), plus a constant, with |a| at
  // most k * 2.25 and |x| below 1.5: y''' = 1.5 (x sigma - a / 2) / (sigma + t / 2)^4, and t is
  // small. Roundings: those of sigma, of the quotient and of the product.
  const testing::Accuracy accuracy{1.6 * (1.5 * sigma + count(k) * 1.125) / std::pow(sigma, 4),
                                   count(k) * 2.25 / sigma + 1.5, count(m * k + 2 * k + 4)};
  check_gradients(
      [&](const Tensors& in) { return Tensors{spectral_norm(in[0], in[1], in[2], u, v, false)}; },
      {values_off_zero({n, k}, 22), Tensor::from(positive, {m, k}, DType::float64),
       values_off_zero({m}, 24)},
      accuracy);
}

TEST_CASE_METHOD(LedgerScope, "the comparison with differences finds a gradient that is wrong") {
  // The differences see both factors, the vjp only one.
  const testing::Operation forgets = [](const Tensors& in) {
    return Tensors{mul(in[0], in[0].detach())};
  };
  const Tensor x = values_off_zero({3}, 21);
  CHECK(gradient_mismatches(forgets, {x}, {0, 2.25, 1}).size() == 3);
  // An error in the eighth digit of one factor shows, too.
  const testing::Operation nearly = [](const Tensors& in) {
    return Tensors{add(scale(in[0], 1e-7), scale(in[0].detach(), 1 - 1e-7))};
  };
  const testing::Operation exact = [](const Tensors& in) { return Tensors{scale(in[0], 1)}; };
  CHECK_FALSE(gradient_mismatches(nearly, {x}, {0, 1.5, 2}).empty());
  CHECK(gradient_mismatches(exact, {x}, {0, 1.5, 2}).empty());
}

TEST_CASE_METHOD(LedgerScope, "the comparison with differences finds an absent gradient") {
  const Tensor x = values_off_zero({3}, 22);
  const testing::Operation ignores = [](const Tensors& in) {
    return Tensors{add(in[0], scale(in[1], 0).detach())};
  };
  CHECK_FALSE(gradient_mismatches(ignores, {x, x.clone()}, {0, 1.5, 2}).empty());
}

/// Row by row, what belongs to `a` and then what belongs to `b`.
std::vector<double> joined(const Tensor& a, const Tensor& b) {
  std::vector<double> all;
  for (std::int64_t i = 0, rows = a.shape()[0]; i < rows; ++i) {
    for (const Tensor* t : {&a, &b}) {
      const std::vector<double> values = t->to_vector();
      const std::int64_t length = t->elements() / rows;
      all.insert(all.end(), values.begin() + i * length, values.begin() + (i + 1) * length);
    }
  }
  return all;
}

TEST_CASE_METHOD(LedgerScope, "rows are joined and split at every rank, and so are gradients") {
  const std::int64_t left = GENERATE(1, 2, 5);
  const std::int64_t right = GENERATE(1, 3);
  const std::size_t rank = GENERATE(2U, 3U, 4U, 5U);
  // Which of the other extents are 1.
  for (unsigned ones = 0; ones < 1U << rank; ++ones) {
    std::array<std::int64_t, Shape::kMaxRank> dims{3, 0, 2, 4, 5};
    for (std::size_t i = 0; i < rank; ++i) dims[i] = (ones >> i & 1U) != 0 ? 1 : dims[i];
    const auto values = [&](std::int64_t columns, std::uint64_t seed) {
      dims[1] = columns;
      return values_off_zero(Shape(std::span<const std::int64_t>(dims.data(), rank)), seed);
    };
    const Tensor a = values(left, 1).set_requires_grad(true);
    const Tensor b = values(right, 2).set_requires_grad(true);
    CAPTURE(to_string(a.shape()), to_string(b.shape()));
    const Tensor whole = concat(a, b);
    REQUIRE(whole.to_vector() == joined(a, b));
    const Tensor factors = values(left + right, 3);
    const Tensor product = mul(whole, factors);
    const auto parts = split(product, left);
    REQUIRE(joined(parts[0], parts[1]) == product.to_vector());
    const Tensors gradients{values(left, 4), values(right, 5)};
    backward(parts, gradients);
    const std::vector<double> all = joined(gradients[0], gradients[1]);
    const Tensor expected = mul(factors, Tensor::from(all, factors.shape(), a.dtype()));
    REQUIRE(joined(a.grad(), b.grad()) == expected.to_vector());
    for (std::size_t d = 0; d < rank; d += d == 0 ? 2 : 1) {
      ++dims[d];
      REQUIRE_THROWS_AS(concat(a, values(right, 6)), std::invalid_argument);
      --dims[d];
    }
  }
}

}  // namespace
}  // namespace rematch
