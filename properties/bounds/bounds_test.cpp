#include "properties/bounds/bounds.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "properties/bounds/functions.h"

namespace rematch::rounding {
namespace {

constexpr Format kFloat{0x1p-24, 0x1p-126, 0x1p127};

Bounds float_bounds() { return {kFloat, 1 << 16}; }

}  // namespace

TEST_CASE("sums of products in float, in any order, stay within their bounds") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 200; ++trial) {
    Bounds t = float_bounds();
    float forward = 0;
    float backward = 0;
    std::vector<float> products;
    for (int i = 0; i < 50; ++i) {
      const float a = normal(random);
      const float b = normal(random);
      t.plus_product(t.leaf({a, 0}), t.leaf({b, 0}));
      products.push_back(a * b);
    }
    for (std::size_t i = 0; i < products.size(); ++i) {
      forward += products[i];
      backward += products[products.size() - 1 - i];
    }
    const Bounded sum = t[t.sum()];
    CHECK(std::fabs(static_cast<double>(forward) - sum.value) <= sum.error);
    CHECK(std::fabs(static_cast<double>(backward) - sum.value) <= sum.error);
    CHECK(sum.error < 1e-3);
  }
}

TEST_CASE("derivatives are those of the chain rule") {
  Bounds t = float_bounds();
  const Bounds::Var x = t.leaf({0.5, 0});
  const Bounds::Var y = t.leaf({2, 0});
  // sigmoid(x y) + 3 x
  const Bounds::Var z = t.plus(sigmoid(t, t.plus_product(x, y).sum())).plus(x, 3).sum();
  const double s = 1 / (1 + std::exp(-1.0));
  const std::vector<Bounded> g = t.gradients(z);
  CHECK(std::fabs(g[0].value - (s * (1 - s) * 2 + 3)) < 1e-15);
  CHECK(std::fabs(g[1].value - s * (1 - s) * 0.5) < 1e-15);
  CHECK(g[0].error > 0);
  CHECK(g[0].error < 1e-5);
}

TEST_CASE("an error of an operand goes through a function with its slope") {
  Bounds t = float_bounds();
  const double e = 1e-3;
  const Bounds::Var x = t.leaf({0.3, e});
  for (const Bounds::Var y : {gelu(t, x), silu(t, x), tanh(t, x), sigmoid(t, x), exp(t, x),
                              log(t, x), reciprocal(t, x), inverse_root(t, x, 0.1), root(t, x)}) {
    INFO(y);
    CHECK(t[y].error > 0);
    CHECK(t[y].error < 20 * e);
  }
  Bounds shifted = float_bounds();
  const Bounds::Var moved = shifted.leaf({0.3 + e, 0});
  CHECK(std::fabs(shifted[log(shifted, moved)].value - t[log(t, x)].value) <= t[log(t, x)].error);
  CHECK(std::fabs(shifted[root(shifted, moved)].value - t[root(t, x)].value) <=
        t[root(t, x)].error);
}

TEST_CASE("within reach of a kink the derivative may be that of either side") {
  Bounds t = float_bounds();
  const Bounds::Var x = t.leaf({1e-9, 1e-8});
  const Bounds::Var y = t.rectified(x, 0);
  CHECK(t.gradients(y)[0].error >= 1);
  const Bounds::Var far = t.leaf({1, 1e-8});
  CHECK(t.gradients(t.rectified(far, 0))[static_cast<std::size_t>(far)].error < 1e-5);
  // A magnitude is as far off as the number.
  CHECK(t[t.rectified(t.leaf({-1, 1e-6}), -1)].error > 1e-6);

  Bounds pool = float_bounds();
  const Bounds::Var a = pool.leaf({1, 1e-7});
  const Bounds::Var b = pool.leaf({1 - 1e-8, 1e-7});
  const Bounds::Var c = pool.leaf({0.5, 1e-7});
  const std::vector<Bounded> g = pool.gradients(pool.largest({a, b, c}));
  CHECK(g[0].error >= 1);
  CHECK(g[1].error >= 1);
  CHECK(g[2].value == 0);
  CHECK(g[2].error == 0);
}

TEST_CASE("of what is undecided nothing is said, nor of what depends on it") {
  Bounds t = float_bounds();
  const Bounds::Var x = t.leaf({1, 0});
  const Bounds::Var apart = t.leaf({1, 0});
  const Bounds::Var jump = t.undecided({x});
  const Bounds::Var root = t.plus(jump).plus(apart).sum();
  CHECK(std::isinf(t[root].error));
  const std::vector<Bounded> g = t.gradients(root);
  CHECK(std::isinf(g[static_cast<std::size_t>(x)].error));
  CHECK(std::isfinite(g[static_cast<std::size_t>(apart)].error));
}

TEST_CASE("what does not lead to the root has a derivative without an error") {
  Bounds t = float_bounds();
  const Bounds::Var x = t.leaf({1, 0});
  const Bounds::Var unused = t.leaf({1, 0});
  const std::vector<Bounded> g = t.gradients(t.plus(x).sum());
  CHECK(g[static_cast<std::size_t>(unused)].error == 0);
  CHECK(g[static_cast<std::size_t>(x)].error > 0);
}

TEST_CASE("of what may overflow nothing is said") {
  Bounds t = float_bounds();
  const Bounds::Var x = t.leaf({1e30, 0});
  const Bounds::Var square = t.plus_product(x, x).sum();
  CHECK(std::isinf(t[square].error));
  const Bounds::Var zero = t.leaf({0, 0});
  CHECK(std::isinf(t[t.plus_product(square, zero).sum()].error));
}

TEST_CASE("an analysis does not grow beyond its limit") {
  Bounds t(kFloat, 10);
  const Bounds::Var x = t.leaf({1, 0});
  for (int i = 0; i < 10; ++i) t.plus(x);
  CHECK_THROWS_AS(t.plus(x), TooLarge);
}

}  // namespace rematch::rounding
