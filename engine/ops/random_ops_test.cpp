#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/noise.h"
#include "engine/random/philox.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::same_bits;
using testing::values_off_zero;

TEST_CASE_METHOD(LedgerScope, "dropout keeps an element exactly when its word is below the bound") {
  ambient().streams.seed(42);
  ambient().streams.at(0).draw(5);
  const PhiloxStream words{42, 0};
  const double p = 0.25;
  const Tensor y = dropout(Tensor::full({9, 11}, DType::float32, 3), p);
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    CAPTURE(i);
    const bool kept = words.word(8 + static_cast<std::uint64_t>(i)) < keep_threshold(p);
    CHECK(y.at(i) == (kept ? 4 : 0));
  }
  CHECK(ambient().streams.at(0).offset == 8 + 100);
}

TEST_CASE_METHOD(LedgerScope, "the gradient of a random op is the factor that it drew") {
  using RandomOp = Tensor (*)(const Tensor&);
  for (const RandomOp op : {RandomOp([](const Tensor& t) { return dropout(t, 0.5); }),
                            RandomOp([](const Tensor& t) { return rrelu(t); })}) {
    const Tensor x = Tensor::full({64}, DType::float64, -1).set_requires_grad(true);
    const Tensor y = op(x);
    // Draws in between must not matter.
    op(x.detach());
    backward(sum(y));
    CHECK(x.grad().to_vector() == scale(y.detach(), -1).to_vector());
  }
  const Tensor x = values_off_zero({64}, 5).set_requires_grad(true);
  backward(sum(gaussian_noise(x, 0.5)));
  CHECK(x.grad().to_vector() == std::vector<double>(64, 1));
}

TEST_CASE_METHOD(LedgerScope, "masks do not depend on the dtype of what they mask") {
  ambient().streams.seed(3);
  const Tensor a = dropout(Tensor::ones({33}, DType::float32), 0.5);
  ambient().streams.seed(3);
  const Tensor b = dropout(Tensor::ones({33}, DType::float64), 0.5);
  CHECK(a.to_vector() == b.to_vector());
}

TEST_CASE_METHOD(LedgerScope, "a random op that has nothing to do returns its operand itself") {
  const Tensor x = Tensor::ones({3}, DType::float32);
  CHECK(is_same(dropout(x, 0.0), x));
  CHECK(is_same(dropout(x, 0.5, {.train = false}), x));
  CHECK(is_same(gaussian_noise(x, 0.0), x));
  CHECK(is_same(gaussian_noise(x, 1.0, {.train = false}), x));
}

TEST_CASE_METHOD(LedgerScope, "rrelu in evaluation is the leaky ReLU of the middle slope") {
  const Tensor x = values_off_zero({17}, 4, DType::float32);
  CHECK(same_bits(rrelu(x, 0.125, 0.375, {.train = false}), leaky_relu(x, 0.25)));
}

TEST_CASE_METHOD(LedgerScope, "rrelu scales negative elements by factors within its bounds") {
  const Tensor x = values_off_zero({200}, 4);
  const Tensor y = rrelu(x, 0.25, 0.5);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    if (x.at(i) > 0) {
      CHECK(y.at(i) == x.at(i));
    } else {
      // The quotient is within an ulp of the factor.
      CHECK(y.at(i) / x.at(i) >= 0.25 * (1 - 0x1p-51));
      CHECK(y.at(i) / x.at(i) <= 0.5 * (1 + 0x1p-51));
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "gaussian noise has the mean and deviation that were asked for") {
  const std::int64_t n = 40000;
  const Tensor y = gaussian_noise(Tensor::zeros({n}, DType::float64), 2.0);
  double mean = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) mean += y.at(i) / static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i) squares += y.at(i) * y.at(i) / static_cast<double>(n);
  // Standard errors: 2 / sqrt(n) = 0.01 and 4 sqrt(2 / n) = 0.028; five of them. The words are
  // fixed, so this passes always or never.
  CHECK(std::abs(mean) < 0.05);
  CHECK(std::abs(squares - 4) < 0.14);
}

}  // namespace
}  // namespace rematch
