#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <functional>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;

/// The same computation written with in-place ops and without.
struct Pair {
  std::function<Tensor(const Tensor&)> in_place;
  std::function<Tensor(const Tensor&)> out_of_place;
};

/// Same value and same gradient, to the bit.
void check_pair(const Pair& pair) {
  const Tensor x = variable({1, -2, 3, -4}, {2, 2});
  const Tensor y = variable({1, -2, 3, -4}, {2, 2});
  const Tensor a = pair.in_place(x);
  const Tensor b = pair.out_of_place(y);
  CHECK(same_bits(a, b));
  const Tensor weights = tensor({1, 10, 100, 1000}, a.shape());
  backward(std::span(&a, 1), std::span(&weights, 1));
  backward(std::span(&b, 1), std::span(&weights, 1));
  CHECK(same_bits(x.grad(), y.grad()));
  CHECK(x.to_vector() == std::vector<double>{1, -2, 3, -4});
}

TEST_CASE_METHOD(LedgerScope, "a constant becomes differentiable by what is added to it in place") {
  const Tensor x = variable({1, 2}, {2});
  Tensor sum_so_far = Tensor::zeros({2}, DType::float64);
  const Tensor view = reshape(sum_so_far, {2, 1});
  CHECK_FALSE(view.requires_grad());
  add_(sum_so_far, x);
  CHECK(sum_so_far.requires_grad());
  CHECK(view.requires_grad());
  CHECK_FALSE(view.is_leaf());
  add_(sum_so_far, x);
  backward(sum(view));
  CHECK(x.grad().to_vector() == std::vector<double>{2, 2});
}

TEST_CASE_METHOD(LedgerScope, "a leaf that requires grad cannot be written, nor a view of one") {
  Tensor x = variable({1, -2}, {2});
  const auto message = Message(
      "[relu_] a leaf that requires grad is being used in an in-place operation; detach() it or "
      "use the out-of-place form");
  CHECK_THROWS_MATCHES(relu_(x), std::invalid_argument, message);
  Tensor view = reshape(x, {2, 1});
  CHECK_THROWS_MATCHES(relu_(view), std::invalid_argument, message);
  CHECK_THROWS_AS(scale_(x, 2), std::invalid_argument);
  CHECK_THROWS_AS(add_(x, tensor({1, 1}, {2})), std::invalid_argument);
  CHECK(x.to_vector() == std::vector<double>{1, -2});
  CHECK(x.version() == 0);
}

TEST_CASE_METHOD(LedgerScope, "a leaf may be written where nothing is recorded, and stays a leaf") {
  Tensor x = variable({1, -2}, {2});
  {
    const GradMode off(false);
    relu_(x);
  }
  CHECK(x.to_vector() == std::vector<double>{1, 0});
  CHECK(x.version() == 1);
  CHECK(x.is_leaf());
  CHECK(x.requires_grad());
}

TEST_CASE_METHOD(LedgerScope, "a write without recording keeps the history and moves the version") {
  const Tensor x = variable({1, -2}, {2});
  const bool view = GENERATE(false, true);
  const Tensor base = scale(x, 3);
  Tensor y = view ? reshape(base, {2}) : base;
  const std::shared_ptr<Node> maker = y.grad_fn();
  {
    const GradMode off(false);
    scale_(y, 2);
  }
  CHECK(y.grad_fn() == maker);
  CHECK(y.version() == 1);
  backward(sum(y));
  CHECK(x.grad().to_vector() == std::vector<double>{3, 3});
}

TEST_CASE_METHOD(LedgerScope, "a failing in-place op has not written anything") {
  Tensor y = scale(variable({1, -2}, {2}), 3);
  CHECK_THROWS_AS(add_(y, tensor({1}, {1})), std::invalid_argument);
  CHECK(y.version() == 0);
  CHECK(y.to_vector() == std::vector<double>{3, -6});
}

TEST_CASE_METHOD(LedgerScope, "relu_ saves its output and notices when that is overwritten") {
  const Tensor x = variable({1, -2}, {2});
  Tensor y = scale(x, 2);
  relu_(y);
  scale_(y, 3);
  CHECK_THROWS_MATCHES(
      backward(sum(y)), std::runtime_error,
      Message("[ReluBackward] saved tensor of shape [2] was changed by an in-place operation: "
              "version 1 expected, got 2; clone() it before the in-place write"));
}

TEST_CASE_METHOD(LedgerScope, "a write to any of many outputs gives the gradient of its twin") {
  const std::size_t n = GENERATE(2U, 3U, 17U);
  const bool by_view = GENERATE(false, true);
  const Function all = [n](const Tensors& in) {
    Tensors y;
    for (std::size_t i = 1; i <= n; ++i) y.push_back(scale(in[0], static_cast<double>(i)));
    return y;
  };
  const auto written = [](int kind, Tensor y, const Tensor& x, bool in_place) {
    if (kind == 0) return y;
    if (kind == 1) return in_place ? scale_(y, 3) : scale(y, 3);
    if (kind == 2) return in_place ? add_(y, x) : add(y, x);
    return in_place ? relu_(y) : relu(y);
  };
  const int first = GENERATE(0, 1, 2);
  const int second = GENERATE(1, 2, 3);
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}, n / 2, n - 1}) {
    CAPTURE(n, by_view, first, second, k);
    const auto run = [&](const Tensor& x, bool in_place) {
      Tensors y = checkpoint(all, {x}, {.reentrant = true});
      for (const int kind : {first, second}) {
        const Shape shape = in_place && by_view ? Shape{4} : x.shape();
        const Tensor operand = in_place && by_view ? reshape(y[k], shape) : y[k];
        const Tensor result = written(kind, operand, reshape(x, shape), in_place);
        if (!in_place) y[k] = result;
      }
      Tensor sum = scale(y[0], 1);
      for (std::size_t i = 1; i < n; ++i) sum = add(sum, scale(y[i], static_cast<double>(i + 1)));
      return sum;
    };
    check_pair({[&](const Tensor& x) { return run(x, true); },
                [&](const Tensor& x) { return run(x, false); }});
  }
}

TEST_CASE_METHOD(LedgerScope, "a view made without recording is not written where it is recorded") {
  const Tensor x = variable({1, -2}, {2});
  Tensor base = scale(x, 3);
  Tensor view = [&] {
    const GradMode off(false);
    return reshape(base, {2, 1});
  }();
  CHECK_THROWS_AS(scale_(view, 5), std::invalid_argument);
  // A write to what it views gives it a history.
  scale_(base, 5);
  scale_(view, 7);
  backward(sum(base));
  CHECK(x.grad().to_vector() == std::vector<double>{105, 105});
}

}  // namespace
}  // namespace rematch
