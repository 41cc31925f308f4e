// Views of views of views: a write through any of them is seen through all.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;
using testing::variable;

const Shape kShapes[] = {{4}, {2, 2}, {1, 4}, {4, 1}, {2, 1, 2}, {1, 1, 2, 2}, {2, 1, 1, 2, 1}};

/// A tensor, and n views: each of the one before, or all of the first.
Tensors with_views(const Tensor& base, std::size_t n, bool chained) {
  Tensors all{base};
  for (std::size_t i = 0; i < n; ++i) {
    all.push_back(reshape(chained ? all.back() : base, kShapes[i % std::size(kShapes)]));
  }
  return all;
}

double factor(std::size_t i) { return i % 3 == 0 ? 2 : i % 3 == 1 ? -0.5 : -1; }

/// A write through each of the views, to and fro.
void write_through_each(Tensors& views, const Tensor& x) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    scale_(views[i], factor(i));
    Tensor& opposite = views[views.size() - 1 - i];
    add_(opposite, reshape(x, opposite.shape()));
  }
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a write through any of many views is seen through all of them") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  const bool chained = GENERATE(false, true);
  CAPTURE(n, chained);
  const Tensor x = values_off_zero({4}, 1).set_requires_grad(true);
  const Tensor twin = values_off_zero({4}, 1).set_requires_grad(true);
  Tensors views = with_views(scale(x, 3), n, chained);
  write_through_each(views, x);
  // The same without views and without writes in place.
  Tensor expected = scale(twin, 3);
  for (std::size_t i = 0; i <= n; ++i) expected = add(scale(expected, factor(i)), twin);
  const Tensor weights = tensor({1, 10, 100, 1000}, {4});
  backward(std::span(&expected, 1), std::span(&weights, 1));
  for (std::size_t i = 0; i <= n; ++i) {
    CAPTURE(i);
    REQUIRE(same_bits(reshape(views[i], {4}).detach(), expected.detach()));
    const Tensor weighted = reshape(weights, views[i].shape());
    backward(std::span(&views[i], 1), std::span(&weighted, 1), {.retain_graph = true});
    REQUIRE(same_bits(x.grad(), twin.grad()));
    Tensor(x).set_grad({});
  }
}

TEST_CASE_METHOD(LedgerScope, "a write through any of many views is noticed by what was saved") {
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U);
  const bool chained = GENERATE(false, true);
  for (std::size_t i = 0; i <= n; ++i) {
    CAPTURE(n, chained, i);
    const Tensor x = values_off_zero({4}, 1).set_requires_grad(true);
    Tensors views = with_views(scale(x, 3), n, chained);
    const std::size_t saved = n - i;
    const Tensor y = sum(gelu(views[saved]));
    scale_(views[i], 2);
    CHECK(views[saved].version() == 1);
    CHECK_THROWS_WITH(backward(y), ContainsSubstring("changed by an in-place operation"));
  }
}

TEST_CASE_METHOD(LedgerScope, "a tensor and its views are one, in any order of writes") {
  // All ways to take three steps: to one of three tensors of one memory a write, recorded or not,
  // or another view in its place.
  constexpr int kSteps = 15;
  const bool constant = GENERATE(false, true);
  const Shape shapes[] = {{1}, {1, 1}, {1, 1, 1}};
  for (int way = 0; way < kSteps * kSteps * kSteps; ++way) {
    CAPTURE(constant, way);
    const Tensor x = variable({1}, {1});
    const Tensor c = variable({1}, {1});
    Tensors t{constant ? tensor({3}, {1}) : scale(x, 3)};
    for (const std::size_t i : {0U, 1U}) t.push_back(reshape(t[i], shapes[i + 1]));
    double value = 3;
    double by_x = constant ? 0 : 3;
    double by_c = 0;
    for (const int step : {way % kSteps, way / kSteps % kSteps, way / kSteps / kSteps}) {
      const auto i = static_cast<std::size_t>(step % 3);
      const bool recorded = step % 2 == 0;
      const GradMode mode(recorded || step >= 12);
      if (step >= 12) {
        t[i] = reshape(t[(i + 1) % 3], shapes[i]);
      } else if (step < 6) {
        scale_(t[i], 2);
        value *= 2;
        by_x *= recorded ? 2 : 1;
        by_c *= recorded ? 2 : 1;
      } else {
        add_(t[i], reshape(c, shapes[i]));
        value += 1;
        by_c += recorded ? 1 : 0;
      }
    }
    for (const Tensor& root : t) {
      REQUIRE(root.item() == value);
      REQUIRE(root.requires_grad() == (by_x + by_c > 0));
      if (!root.requires_grad()) continue;
      const Tensors g = grad(std::span(&root, 1), Tensors{x, c}, {}, true);
      REQUIRE((g[0].defined() ? g[0].item() : 0) == by_x);
      REQUIRE((g[1].defined() ? g[1].item() : 0) == by_c);
    }
  }
}

}  // namespace rematch
