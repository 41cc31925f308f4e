#include "engine/autograd/backward.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <stdexcept>

#include "engine/autograd/node.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;
using Values = std::vector<double>;

TEST_CASE_METHOD(LedgerScope, "a gradient given to backward weighs each element of the root") {
  const Tensor x = variable({2, -3}, {2});
  const Tensor y = scale(x, 4);
  const Tensor weights = tensor({1, 10}, {2});
  backward(std::span(&y, 1), std::span(&weights, 1));
  CHECK(x.grad().to_vector() == Values{4, 40});
}

TEST_CASE_METHOD(LedgerScope, "the gradient that a caller passes in is not taken over") {
  const Tensor x = variable({2, 3}, {2});
  const Tensor weights = tensor({1, 10}, {2});
  backward(std::span(&x, 1), std::span(&weights, 1));
  backward(std::span(&x, 1), std::span(&weights, 1));
  CHECK(x.grad().to_vector() == Values{2, 20});
  CHECK(weights.to_vector() == Values{1, 10});
}

TEST_CASE_METHOD(LedgerScope, "a root of several elements needs a gradient") {
  const Tensor y = scale(variable({1, 2}, {2}), 2);
  CHECK_THROWS_MATCHES(backward(y), std::invalid_argument,
                       Message("[backward] a root without a given gradient must have one "
                               "element, got shape [2]"));
}

TEST_CASE_METHOD(LedgerScope, "a gradient must fit its root in shape, dtype and number") {
  const Tensor y = scale(variable({1, 2}, {2}), 2);
  const Tensors roots{y};
  CHECK_THROWS_MATCHES(
      backward(roots, Tensors{tensor({1}, {1})}), std::invalid_argument,
      Message("[backward] gradient of shape [2] float64 expected, got [1] float64"));
  CHECK_THROWS_AS(backward(roots, Tensors{tensor({1, 1}, {2}, DType::float32)}),
                  std::invalid_argument);
  CHECK_THROWS_MATCHES(backward(roots, Tensors{{}, {}}), std::invalid_argument,
                       Message("[backward] 1 roots but 2 gradients"));
}

TEST_CASE_METHOD(LedgerScope, "a leaf that was frozen since the forward gets no gradient") {
  Tensor frozen = testing::leaf({2, 3}, 1);
  const Tensor other = testing::leaf({2, 3}, 2);
  const Tensor y = sum(mul(frozen, other));
  frozen.set_requires_grad(false);
  backward(y);
  CHECK_FALSE(frozen.grad().defined());
  CHECK(same_bits(other.grad(), frozen));
}

TEST_CASE_METHOD(LedgerScope, "a graph that was walked and freed says so") {
  const Tensor x = variable({3}, {1});
  const Tensor y = mul(x, x);
  const Tensor z = scale(y, 2);
  backward(y);
  CHECK_THROWS_MATCHES(backward(y), std::runtime_error,
                       Message("[backward] the graph behind MulBackward was already walked and "
                               "freed; pass retain_graph to the first backward to walk it twice"));
  // Also when only a part of it was walked before.
  CHECK_THROWS_AS(backward(z), std::runtime_error);
  CHECK(x.grad().item() == 6);
}

TEST_CASE_METHOD(LedgerScope,
                 "the order of a sum does not depend on the shape of the graph above") {
  // As before, but the three are consumed in another order than they were made in.
  const Tensor x = variable({1}, {1});
  const Tensor a = scale(x, 1);
  const Tensor b = scale(x, 1e16);
  const Tensor c = scale(x, -1e16);
  backward(add(a, add(c, b)));
  CHECK(x.grad().item() == 1);
}

TEST_CASE_METHOD(LedgerScope, "contributions are summed in the reverse order of their making") {
  // The last made arrives first: only (-1e16 + 1e16) + 1 gives 1. How they are consumed is no
  // matter.
  const auto gradient = [](double first, double second, double third, bool consumed_in_order) {
    const Tensor x = variable({1}, {1});
    const Tensor a = scale(x, first);
    const Tensor b = scale(x, second);
    const Tensor c = scale(x, third);
    backward(consumed_in_order ? add(add(a, b), c) : add(a, add(c, b)));
    return x.grad().item();
  };
  for (const bool in_order : {false, true}) {
    CHECK(gradient(1, 1e16, -1e16, in_order) == 1);
    CHECK(gradient(1e16, -1e16, 1, in_order) == 0);
  }
}

TEST_CASE_METHOD(LedgerScope, "a gradient that two leaves receive is not shared between them") {
  const Tensor x = variable({1}, {1});
  const Tensor y = variable({1}, {1});
  backward(add(x, y));
  backward(scale(x, 5));
  CHECK(x.grad().item() == 6);
  CHECK(y.grad().item() == 1);
}

TEST_CASE_METHOD(LedgerScope, "the sum over one pass is made before it is added to the old grad") {
  // old + ((-1e16 + 1e16) + 1) and not ((old - 1e16) + 1e16) + 1, which would lose old.
  Tensor x = variable({1}, {1});
  x.set_grad(tensor({1}, {1}));
  const Tensor a = scale(x, 1);
  const Tensor b = scale(x, 1e16);
  const Tensor c = scale(x, -1e16);
  backward(add(add(a, b), c));
  CHECK(x.grad().item() == 2);
}

TEST_CASE_METHOD(LedgerScope, "a backward inside of a backward stands for itself") {
  const Tensor x = variable({3}, {1});
  const Tensor y = mul(x, x);
  const Tensor w = variable({5}, {1});
  std::uint64_t outer = 0;
  std::uint64_t inner = 0;
  y.grad_fn()->add_hook(0, [&](const Tensor&) {
    outer = current_backward();
    const GradMode on(true);
    const Tensor z = mul(w, w);
    z.grad_fn()->add_hook(0, [&](const Tensor&) {
      inner = current_backward();
      return Tensor();
    });
    backward(z);
    CHECK(current_backward() == outer);
    return Tensor();
  });
  backward(scale(y, 2));
  CHECK(x.grad().item() == 12);
  CHECK(w.grad().item() == 10);
  CHECK(outer != 0);
  CHECK(inner != 0);
  CHECK(inner != outer);
}

}  // namespace
}  // namespace rematch
