#include "engine/ops/rotary.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::tensor;
using testing::values_off_zero;
using testing::variable;
using Values = std::vector<double>;

/// Rotated features c and c + half of a head, as the cosine and the sine of radians make them.
struct Pair {
  double first;
  double second;
};
Pair rotated(double first, double second, double radians) {
  return {first * std::cos(radians) - second * std::sin(radians),
          second * std::cos(radians) + first * std::sin(radians)};
}

bool near(double a, double b) { return std::fabs(a - b) <= 1e-14; }

TEST_CASE_METHOD(LedgerScope, "the features of a head turn in pairs, by their position") {
  const Tensor x = values_off_zero({2, 3, 8}, 1);
  const Values in = x.to_vector();
  const Values out = rotary(x, 8, 2).to_vector();
  for (std::size_t row = 0; row < 6; ++row) {
    const auto position = static_cast<double>(row % 3);
    for (const std::size_t head : {0U, 4U}) {
      for (const std::size_t pair : {0U, 1U}) {
        CAPTURE(row, head, pair);
        const std::size_t at = row * 8 + head + pair;
        // The second pair of a head of four features is a hundred times slower.
        const double radians = position * (pair == 0 ? 1 : 0.01);
        const Pair expected = rotated(in[at], in[at + 2], radians);
        // Sine and cosine are within 2^-52, x is below 3/2, and each of the three roundings adds
        // at most 2^-52: below 1e-14. So is the error of the angle, 2^-51 of less than a turn.
        CHECK(near(out[at], expected.first));
        CHECK(near(out[at + 2], expected.second));
      }
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "features behind those of the heads are handed through") {
  const Tensor x = values_off_zero({1, 2, 5}, 2);
  const Values in = x.to_vector();
  const Values out = rotary(x, 2, 1).to_vector();
  CHECK(std::vector(out.begin(), out.begin() + 5) == std::vector(in.begin(), in.begin() + 5));
  CHECK(out[5] != in[5]);
  CHECK(std::vector(out.begin() + 7, out.end()) == std::vector(in.begin() + 7, in.end()));
}

TEST_CASE_METHOD(LedgerScope, "a product of two rotated rows depends on how far apart they are") {
  const Tensor q = values_off_zero({1, 1, 6}, 3);
  const Tensor k = values_off_zero({1, 1, 6}, 4);
  // One row at every position.
  const auto everywhere = [](const Tensor& row) {
    Values all;
    for (int position = 0; position < 9; ++position) {
      const Values one = row.to_vector();
      all.insert(all.end(), one.begin(), one.end());
    }
    return rotary(Tensor::from(all, {1, 9, 6}, DType::float64), 6, 1).to_vector();
  };
  const Values queries = everywhere(q);
  const Values keys = everywhere(k);
  const auto product = [&](std::size_t i, std::size_t j) {
    double sum = 0;
    for (std::size_t c = 0; c < 6; ++c) sum += queries[i * 6 + c] * keys[j * 6 + c];
    return sum;
  };
  for (const std::size_t apart : {0U, 1U, 5U}) {
    for (std::size_t j = 0; j + apart < 9; ++j) {
      // Six products of factors below 3, each within 1e-14 (as above): below 6 * 3 * 2 * 1e-14.
      CHECK(std::fabs(product(j + apart, j) - product(apart, 0)) <= 4e-13);
    }
  }
  CHECK(std::fabs(product(1, 0) - product(0, 0)) > 0.1);
}

TEST_CASE_METHOD(LedgerScope, "a gradient is turned back") {
  const Tensor x = values_off_zero({2, 4, 7}, 5).set_requires_grad(true);
  const Tensor gradient = rotary(values_off_zero({2, 4, 7}, 6), 6, 3);
  const Tensor root = sum(mul(rotary(x, 6, 3), gradient));
  backward(root);
  // The product's gradient by the rotated x is the rotated tensor, so that by x is the tensor.
  const Values found = x.grad().to_vector();
  const Values expected = values_off_zero({2, 4, 7}, 6).to_vector();
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(near(found[i], expected[i]));
}

TEST_CASE_METHOD(LedgerScope, "rotary positions refuse what they cannot pair") {
  const Tensor x = values_off_zero({1, 2, 6}, 7);
  CHECK_THROWS_AS(rotary(x, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(rotary(x, 6, 2), std::invalid_argument);
  CHECK_THROWS_AS(rotary(x, 8, 1), std::invalid_argument);
  CHECK_THROWS_AS(rotary(x, 0, 0), std::invalid_argument);
  CHECK_THROWS_AS(rotary(values_off_zero({2, 6}, 8), 2, 1), std::invalid_argument);
  CHECK(
      rotary(cast(values_off_zero({1, 1, 2}, 9, DType::float32), DType::bfloat16), 2, 1).dtype() ==
      DType::float32);
}

}  // namespace
}  // namespace rematch
