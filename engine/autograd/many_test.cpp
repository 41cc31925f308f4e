// Backward passes with many hooks, callbacks, roots, shares and leaves.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

/// 0..n-1. Compare in two pairs of parentheses: Catch2 would print all that it is.
std::vector<int> counting(int n) {
  std::vector<int> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int sizes() { return GENERATE(1, 2, 257); }

}  // namespace

TEST_CASE_METHOD(LedgerScope, "each of many hooks, shares, roots, leaves and passes counts once") {
  const int n = sizes();
  Tensor x = variable({1}, {1});
  Tensors leaves;
  Tensors roots;
  Tensors gradients;
  std::vector<int> of_leaves;
  std::vector<int> of_x;
  double sum_of_weights = 0;
  for (int i = 0; i < n; ++i) {
    const double weight = static_cast<double>(i) / 8;
    sum_of_weights += weight;
    // No two of these commute: each passes on its argument plus i, negated.
    x.register_hook([&of_x, i](const Tensor& g) {
      of_x.push_back(i);
      return tensor({-g.item() - i}, {1});
    });
    leaves.push_back(variable({1}, {1}));
    leaves.back().register_hook([&of_leaves, i](const Tensor& g) {
      of_leaves.push_back(i);
      return scale(g, i + 1);
    });
    roots.push_back(add(scale(leaves.back(), 3), scale(x, weight)));
    gradients.push_back(tensor({1}, {1}));
  }
  double expected = sum_of_weights;
  for (int i = 0; i < n; ++i) expected = -expected - i;
  const bool together = GENERATE(true, false);
  CAPTURE(n, together);
  if (!together) {
    // A share in one root each, of a sum that is walked twice.
    Tensor root = roots[0];
    for (int i = 1; i < n; ++i) root = add(roots[static_cast<std::size_t>(i)], root);
    roots = {root};
    gradients = {tensor({1}, {1})};
  }
  for (const int passes : {1, 2}) {
    of_x.clear();
    of_leaves.clear();
    backward(roots, gradients, {.retain_graph = true});
    CHECK((of_x == counting(n)));
    CHECK(x.grad().item() == expected * passes);
    std::sort(of_leaves.begin(), of_leaves.end());
    CHECK((of_leaves == counting(n)));
    for (int i = 0; i < n; ++i) {
      const double slope = leaves[static_cast<std::size_t>(i)].grad().item();
      if (slope != 3.0 * (i + 1) * passes) FAIL(i);
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "leaves that become ready together go in the order of the operands") {
  const int n = sizes();
  Tensors leaves;
  std::vector<int> order;
  for (int i = 0; i < n; ++i) {
    leaves.push_back(variable({1}, {1}));
    leaves.back().register_hook([&order, i](const Tensor&) {
      order.push_back(i);
      return Tensor();
    });
  }
  backward(testing::fan(leaves));
  CHECK((order == counting(n)));
}

TEST_CASE_METHOD(LedgerScope, "every callback runs once when its pass ends, in order") {
  const int n = sizes();
  const bool throws = GENERATE(false, true);
  Tensor x = variable({1}, {1});
  std::vector<int> ran;
  std::vector<std::uint64_t> inside;
  x.register_hook([&](const Tensor&) -> Tensor {
    for (int i = 0; i < n; ++i) {
      at_end_of_backward([&, i] {
        ran.push_back(i);
        inside.push_back(current_backward());
      });
    }
    CHECK(ran.empty());
    if (throws) throw std::domain_error("mine");
    return {};
  });
  if (throws) {
    CHECK_THROWS_AS(backward(scale(x, 2)), std::domain_error);
  } else {
    backward(scale(x, 2));
  }
  CHECK((ran == counting(n)));
  CHECK((inside == std::vector<std::uint64_t>(static_cast<std::size_t>(n), 0)));
}

}  // namespace rematch
