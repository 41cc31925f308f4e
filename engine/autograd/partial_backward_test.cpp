#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;
using Values = std::vector<double>;

Tensors grad_of(const Tensor& output, const Tensors& inputs, bool retain_graph = false) {
  return grad(std::span(&output, 1), inputs, {}, retain_graph);
}

/// Counts how often the gradient of `t` arrives.
void count_arrivals(const Tensor& t, int& count) {
  Tensor(t).register_hook([&count](const Tensor&) {
    ++count;
    return Tensor();
  });
}

TEST_CASE_METHOD(LedgerScope, "grad() differentiates with respect to tensors in the middle") {
  const Tensor x = variable({3}, {1});
  const Tensor y = mul(x, x);
  const Tensor z = mul(y, y);
  const Tensors g = grad_of(z, {y, x});
  CHECK(g[0].item() == 18);
  CHECK(g[1].item() == 18 * 6);
}

TEST_CASE_METHOD(LedgerScope, "grad() refuses an input that does not require grad") {
  const Tensor x = variable({3}, {1});
  CHECK_THROWS_MATCHES(grad_of(scale(x, 2), {x, tensor({1}, {1})}), std::invalid_argument,
                       Message("[grad] input 1 does not require grad"));
}

TEST_CASE_METHOD(LedgerScope, "grad() walks only what leads to its inputs") {
  const Tensor x = variable({3}, {1});
  const Tensor w = variable({5}, {1});
  const Tensor left = scale(x, 2);
  const Tensor right = scale(w, 2);
  int left_count = 0;
  int right_count = 0;
  count_arrivals(left, left_count);
  count_arrivals(right, right_count);
  CHECK(grad_of(mul(left, right), {x})[0].item() == 20);
  CHECK(left_count == 1);
  CHECK(right_count == 0);
  // Nodes that were not walked were not freed, either.
  CHECK_NOTHROW(backward(right));
}

TEST_CASE_METHOD(LedgerScope, "grad() does not walk behind a tensor in the middle") {
  const Tensor x = variable({0.5}, {1});
  const Tensor y = tanh(x);
  int behind = 0;
  const Tensor z = tanh(y);
  count_arrivals(y, behind);
  CHECK(grad_of(z, {z}, true)[0].item() == 1);
  CHECK(behind == 0);
  CHECK(grad_of(z, {y})[0].defined());
  CHECK(behind == 1);
  // y's own node was never run, so it still has what it saved.
  CHECK_NOTHROW(backward(y));
}

TEST_CASE_METHOD(LedgerScope, "backward into a tensor in the middle is refused") {
  const Tensor x = variable({3}, {1});
  const Tensor y = scale(x, 2);
  CHECK_THROWS_MATCHES(backward(scale(y, 1), {.inputs = {y}}), std::invalid_argument,
                       Message("[backward] inputs must be leaves; use grad() for others"));
}

TEST_CASE_METHOD(LedgerScope, "a partial backward knows that it is one") {
  const Tensor x = variable({3}, {1});
  const Tensor y = scale(x, 2);
  std::vector<bool> partial;
  Tensor(y).register_hook([&](const Tensor&) {
    partial.push_back(current_backward_is_partial());
    return Tensor();
  });
  backward(y, {.retain_graph = true});
  backward(y, {.retain_graph = true, .inputs = {x}});
  grad_of(y, {x});
  CHECK(partial == std::vector<bool>{false, true, true});
  CHECK_FALSE(current_backward_is_partial());
}

TEST_CASE_METHOD(LedgerScope, "a partial backward goes through a view whose base was rewritten") {
  // The view's node is made again when the view is used next, after the node that uses it began.
  const Tensor x = variable({1, 2}, {2});
  Tensor base = scale(x, 3);
  const Tensor view = reshape(base, {2, 1});
  scale_(base, 5);
  const Tensor w = variable({1, 1}, {2, 1});
  const Tensor loss = sum(mul(view, w));
  const Tensors g = grad_of(loss, {x}, true);
  REQUIRE(g[0].defined());
  CHECK(g[0].to_vector() == Values{15, 15});
  backward(loss);
  CHECK(x.grad().to_vector() == Values{15, 15});
}

}  // namespace
}  // namespace rematch
