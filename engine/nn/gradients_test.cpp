#include "engine/nn/gradients.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

Tensor with_gradient(const std::vector<double>& gradient, DType dtype = DType::float32) {
  const Shape shape{static_cast<std::int64_t>(gradient.size())};
  Tensor p = Tensor::zeros(shape, dtype).set_requires_grad(true);
  p.set_grad(Tensor::from(gradient, shape, dtype));
  return p;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "clipped gradients keep their direction and have the norm that is most") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor a = with_gradient({3, 0}, dtype);
    const Tensor b = with_gradient({4}, dtype);
    Tensor none = Tensor::zeros({2}, dtype).set_requires_grad(true);
    nn::clip_gradients({a, none, b}, 1);
    // Norm 5, to which 1e-6 is added.
    const double factor = 1 / (5 + 1e-6);
    // The factor and the product are rounded.
    const double error = 2 * (dtype == DType::float32 ? 0x1p-24 : 0x1p-53);
    CHECK(std::fabs(a.grad().at(0) - 3 * factor) <= 3 * factor * error);
    CHECK(a.grad().at(1) == 0);
    CHECK(std::fabs(b.grad().at(0) - 4 * factor) <= 4 * factor * error);
    CHECK(!none.grad().defined());
  }
}

TEST_CASE_METHOD(LedgerScope, "a norm that is no number leaves none") {
  const Tensor p = with_gradient({1, std::numeric_limits<double>::quiet_NaN()});
  nn::clip_gradients({p}, 1);
  CHECK(std::isnan(p.grad().at(0)));
  const Tensor q = with_gradient({1, std::numeric_limits<double>::infinity()});
  nn::clip_gradients({q}, 1);
  CHECK(q.grad().at(0) == 0);
  CHECK(std::isnan(q.grad().at(1)));
}

TEST_CASE_METHOD(LedgerScope, "gradients of a scaled loss are unscaled to the bit") {
  const Tensor x = tensor({0.1F, -0.2F, 0.7F}, {3}, DType::float32).set_requires_grad(true);
  backward(sum(mul(x, x)));
  const std::vector<double> plain = x.grad().to_vector();
  Tensor again = x;
  again.set_grad(Tensor());
  nn::GradScaler scaler(0x1p16);
  const Tensor loss = sum(mul(x, x));
  const Tensor scaled = scaler.scaled(loss);
  CHECK(scaled.at(0) == loss.at(0) * 0x1p16);
  backward(scaled);
  CHECK(x.grad().to_vector() != plain);
  CHECK(scaler.unscale({x}));
  CHECK(x.grad().to_vector() == plain);
  CHECK(scaler.scale() == 0x1p16);
}

TEST_CASE_METHOD(LedgerScope, "a gradient that is not finite says that the step is to be skipped") {
  const Tensor fine = with_gradient({1});
  for (const double wrong :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    nn::GradScaler scaler(8);
    CHECK(!scaler.unscale({fine, with_gradient({0, wrong})}));
    CHECK(scaler.scale() == 4);
  }
  nn::GradScaler scaler(8);
  CHECK(scaler.unscale({}));
  CHECK(scaler.unscale({Tensor::zeros({1}, DType::float32)}));
  // Squares of it would overflow.
  CHECK(scaler.unscale({with_gradient({0x1p100})}));
  CHECK_THROWS_AS(nn::GradScaler(0), std::invalid_argument);
  CHECK_THROWS_AS(nn::GradScaler(-1), std::invalid_argument);
  CHECK_THROWS_AS(nn::GradScaler(std::numeric_limits<double>::infinity()), std::invalid_argument);
}

TEST_CASE_METHOD(LedgerScope, "gradients that are short enough keep their bits") {
  const std::vector<double> gradient{0.1F, -0.2F, 0.3F};
  const Tensor p = with_gradient(gradient);
  nn::clip_gradients({p}, 1);
  CHECK(p.grad().to_vector() == gradient);
  nn::clip_gradients({}, 1);
}

}  // namespace rematch
