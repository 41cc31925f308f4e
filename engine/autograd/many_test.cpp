// Backward passes with many hooks, callbacks, roots, shares and inputs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::tensor;
using testing::variable;

/// 0..n-1. Compare in two pairs of parentheses: Catch2 would print all that it is.
std::vector<int> counting(int n) {
  std::vector<int> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int sizes() { return GENERATE(2, 5, 17, 65, 257, 65537); }

/// Hook i passes on its argument modulo a prime, times 3, plus i: no two hooks commute.
double passed_on(double value, int i) {
  return static_cast<double>((static_cast<std::int64_t>(value) * 3 + i) % 65521);
}

/// 0, 1/8, 2/8, ...
Tensor number(int i) { return tensor({static_cast<double>(i) / 8}, {1}); }

}  // namespace

TEST_CASE_METHOD(LedgerScope, "every hook of a tensor runs, in order, on what the last one made") {
  const int n = sizes();
  const bool leaf = GENERATE(false, true);
  CAPTURE(n, leaf);
  Tensor x = variable({1}, {1});
  Tensor y = scale(x, 1);
  std::vector<int> order;
  for (int i = 0; i < n; ++i) {
    (leaf ? x : y).register_hook([&order, i](const Tensor& g) {
      order.push_back(i);
      return tensor({passed_on(g.item(), i)}, {1});
    });
  }
  double expected = 1;
  for (int i = 0; i < n; ++i) expected = passed_on(expected, i);
  backward(y, {.retain_graph = true});
  CHECK((order == counting(n)));
  CHECK(x.grad().item() == expected);
  x.set_grad({});
  order.clear();
  backward(y);
  CHECK((order == counting(n)));
  CHECK(x.grad().item() == expected);
}

TEST_CASE_METHOD(LedgerScope, "every hook of a tensor is held to the shape that it was given") {
  const int n = GENERATE(2, 5, 17, 65, 257);
  const bool leaf = GENERATE(false, true);
  Tensor x = variable({1}, {1});
  Tensor y = scale(x, 1);
  int wrong = -1;
  int ran = 0;
  for (int i = 0; i < n; ++i) {
    (leaf ? x : y).register_hook([&, i](const Tensor&) {
      ++ran;
      return i == wrong ? tensor({1, 2}, {2}) : Tensor();
    });
  }
  for (wrong = 0; wrong < n; ++wrong) {
    CAPTURE(n, leaf, wrong);
    ran = 0;
    CHECK_THROWS_WITH(backward(y, {.retain_graph = true}), ContainsSubstring("got [2] float64"));
    CHECK(ran == wrong + 1);
  }
  CHECK_NOTHROW(backward(y));
}

TEST_CASE_METHOD(LedgerScope, "every leaf's hooks run, and each leaf has its own gradient") {
  const int n = sizes();
  Tensors leaves;
  std::vector<int> order;
  Tensor y;
  for (int i = 0; i < n; ++i) {
    leaves.push_back(variable({1}, {1}));
    leaves.back().register_hook([&order, i](const Tensor& g) {
      order.push_back(i);
      return scale(g, i + 1);
    });
    const Tensor part = scale(leaves.back(), 3);
    y = y.defined() ? add(part, y) : part;
  }
  backward(y);
  // From the last one made to the first, as the graph is walked.
  const std::vector<int> expected = counting(n);
  CHECK((std::vector<int>(order.rbegin(), order.rend()) == expected));
  for (int i = 0; i < n; ++i) {
    if (leaves[static_cast<std::size_t>(i)].grad().item() != 3.0 * (i + 1)) FAIL(i);
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

TEST_CASE_METHOD(LedgerScope, "every root counts, with the gradient that it is given") {
  const int n = sizes();
  // One root given many times; roots of one leaf; of a leaf each.
  enum class Roots { same, one_leaf, leaf_each };
  const Roots kind = GENERATE(Roots::same, Roots::one_leaf, Roots::leaf_each);
  CAPTURE(n, static_cast<int>(kind));
  const Tensor x = variable({1}, {1});
  const Tensor y = scale(x, 2);
  Tensors leaves;
  Tensors roots;
  Tensors gradients;
  double expected = 0;
  for (int i = 0; i < n; ++i) {
    leaves.push_back(kind == Roots::leaf_each ? variable({1}, {1}) : x);
    roots.push_back(kind == Roots::same ? y : scale(leaves.back(), 2));
    gradients.push_back(number(i));
    expected += 2 * static_cast<double>(i) / 8;
  }
  backward(roots, gradients);
  if (kind != Roots::leaf_each) {
    CHECK(x.grad().item() == expected);
    return;
  }
  for (int i = 0; i < n; ++i) {
    if (leaves[static_cast<std::size_t>(i)].grad().item() != static_cast<double>(i) / 4) FAIL(i);
  }
}

TEST_CASE_METHOD(LedgerScope, "every root and every gradient is looked at before the walk") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  for (std::size_t p = 0; p < n; ++p) {
    CAPTURE(n, p);
    const Tensor x = variable({1}, {1});
    const auto walk = [&](const Tensor& root, const Tensor& gradient) {
      Tensors roots;
      for (std::size_t i = 0; i < n; ++i) roots.push_back(scale(variable({1}, {1}), 2));
      Tensors gradients(n, tensor({1}, {1}));
      roots[p] = root;
      gradients[p] = gradient;
      backward(roots, gradients);
    };
    const Tensor y = scale(x, 2);
    CHECK_THROWS_WITH(
        walk(tensor({1}, {1}), tensor({1}, {1})),
        ContainsSubstring("the root does not require grad: nothing it was made from"));
    CHECK_THROWS_WITH(walk(y, tensor({1, 2}, {2})), ContainsSubstring("[1] float64 expected"));
    CHECK_THROWS_WITH(walk(y, Tensor::ones({1}, DType::float32)),
                      ContainsSubstring("got [1] float32"));
    CHECK_FALSE(x.grad().defined());
  }
}

TEST_CASE_METHOD(LedgerScope, "every share that arrives at a tensor is in its gradient, once") {
  const int n = sizes();
  const bool leaf = GENERATE(false, true);
  CAPTURE(n, leaf);
  Tensor x = variable({1}, {1});
  const Tensor middle = leaf ? x : scale(x, 1);
  std::vector<double> seen;
  x.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  Tensor y;
  double expected = 0;
  for (int i = 0; i < n; ++i) {
    const Tensor share = scale(middle, static_cast<double>(i) / 8);
    y = y.defined() ? add(y, share) : share;
    expected += static_cast<double>(i) / 8;
  }
  backward(y);
  CHECK(seen == std::vector<double>{expected});
  CHECK(x.grad().item() == expected);
}

TEST_CASE_METHOD(LedgerScope, "the gradients of many backwards add up in one leaf") {
  const int n = sizes();
  const bool retained = GENERATE(false, true);
  const Tensor x = variable({1}, {1});
  const Tensor y = mul(x, x);
  double expected = 0;
  for (int i = 0; i < n; ++i) {
    const Tensor root = retained ? y : mul(x, x);
    const Tensor gradient = number(i);
    backward(std::span(&root, 1), std::span(&gradient, 1), {.retain_graph = retained});
    expected += static_cast<double>(i) / 4;
  }
  CHECK(x.grad().item() == expected);
}

TEST_CASE_METHOD(LedgerScope, "grad() and a backward with inputs serve every input") {
  const int n = GENERATE(2, 5, 17, 65, 257, 2049);
  const auto count = static_cast<std::size_t>(n);
  CAPTURE(n);
  const Tensor x = variable({1}, {1});
  Tensors chain{x};
  Tensors leaves;
  for (int i = 0; i < n; ++i) {
    leaves.push_back(variable({2}, {1}));
    chain.push_back(add(scale(chain.back(), -1), leaves.back()));
  }
  const auto sign = [&](std::size_t i) { return (count - i) % 2 == 0 ? 1.0 : -1.0; };
  const Tensors root{chain.back()};
  const Tensors middle = grad(root, chain, {}, true);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (middle[i].item() != sign(i)) FAIL(i);
  }
  // Every third leaf, and no other.
  Tensors some;
  for (std::size_t i = 0; i < count; i += 3) some.push_back(leaves[i]);
  backward(root, {}, {.inputs = some});
  for (std::size_t i = 0; i < count; ++i) {
    if (leaves[i].grad().defined() != (i % 3 == 0)) FAIL(i);
    if (i % 3 == 0 && leaves[i].grad().item() != sign(i + 1)) FAIL(i);
  }
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE_METHOD(LedgerScope, "passes within passes stand for themselves, at every depth") {
  const int n = GENERATE(2, 5, 17, 65, 200);
  CAPTURE(n);
  Tensor x = variable({1}, {1});
  const Tensor y = scale(x, 2);
  std::vector<std::uint64_t> numbers;
  std::vector<int> ended;
  x.register_hook([&](const Tensor&) -> Tensor {
    const std::uint64_t mine = current_backward();
    const int depth = static_cast<int>(numbers.size());
    numbers.push_back(mine);
    at_end_of_backward([&ended, depth] { ended.push_back(depth); });
    if (depth + 1 < n) backward(y, {.retain_graph = true});
    CHECK(current_backward() == mine);
    return {};
  });
  backward(y, {.retain_graph = true});
  CHECK(x.grad().item() == 2.0 * n);
  std::vector<int> expected = counting(n);
  CHECK((std::vector<int>(ended.rbegin(), ended.rend()) == expected));
  for (std::size_t i = 1; i < numbers.size(); ++i) CHECK(numbers[i] > numbers[i - 1]);
  CHECK(current_backward() == 0);
}

TEST_CASE_METHOD(LedgerScope, "every saved tensor goes through the hooks, once each way") {
  const int n = sizes();
  std::vector<double> packed;
  std::vector<double> unpacked;
  FunctionHooks hooks(
      [&](const Tensor& t) {
        packed.push_back(t.item());
        return t;
      },
      [&](const Tensor& t) {
        unpacked.push_back(t.item());
        return t;
      });
  std::vector<double> expected;
  Tensor y = variable({1}, {1});
  {
    const HookScope scope(&hooks);
    for (int i = 0; i < n; ++i) {
      const Tensor factor = number(i);
      expected.push_back(factor.item());
      y = mul(y, factor);
    }
  }
  CHECK((packed == expected));
  backward(y);
  CHECK((std::vector<double>(unpacked.rbegin(), unpacked.rend()) == expected));
}

TEST_CASE_METHOD(LedgerScope, "scopes of hooks nest to any depth, and each ends with its own") {
  const int n = GENERATE(2, 5, 17, 65, 257);
  std::vector<int> packed;
  std::vector<FunctionHooks> hooks;
  hooks.reserve(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    hooks.emplace_back(
        [&packed, i](const Tensor& t) {
          packed.push_back(i);
          return t;
        },
        [](const Tensor& t) { return t; });
  }
  const Tensor x = variable({0.5}, {1});
  const std::function<void(int)> enter = [&](int i) {
    if (i == n) {
      const HookScope none(nullptr);
      tanh(x);
      return;
    }
    const HookScope scope(&hooks[static_cast<std::size_t>(i)]);
    tanh(x);
    CHECK(packed.back() == i);
    enter(i + 1);
    tanh(x);
    CHECK(packed.back() == i);
  };
  enter(0);
  tanh(x);
  CHECK(static_cast<int>(packed.size()) == 2 * n);
}

}  // namespace rematch
