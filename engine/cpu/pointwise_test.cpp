#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "engine/kernels/activation.h"
#include "engine/kernels/optimizer.h"

namespace rematch::cpu {
namespace {

TEST_CASE("relu keeps NaN, clears the sign of zero and passes gradient only where positive") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::array<float, 5> x{-1.0F, -0.0F, 0.0F, 2.0F, nan};
  std::array<float, 5> y{};
  relu_forward<float>(5, x.data(), y.data());
  CHECK(y[0] == 0);
  CHECK(!std::signbit(y[0]));
  CHECK(!std::signbit(y[1]));
  CHECK(y[3] == 2);
  CHECK(std::isnan(y[4]));
  const std::array<float, 5> gy{1, 2, 3, 4, 5};
  std::array<float, 5> gx{};
  relu_backward<float>(5, gy.data(), y.data(), gx.data());
  CHECK(gx == std::array<float, 5>{0, 0, 0, 4, 0});
  leaky_relu_forward<float>(4, x.data(), 0.5F, y.data());
  CHECK(y[0] == -0.5F);
  CHECK(y[3] == 2);
  leaky_relu_backward<float>(4, gy.data(), x.data(), 0.5F, gx.data());
  CHECK(gx == std::array<float, 5>{0.5F, 1, 1.5F, 4, 0});
}

TEST_CASE("softmax of huge inputs neither overflows nor loses its sum") {
  const std::array<float, 3> x{1e30F, 1e30F, -1e30F};
  std::array<float, 3> y{};
  softmax_forward<float>(1, 3, x.data(), y.data());
  CHECK(y == std::array<float, 3>{0.5F, 0.5F, 0.0F});
}

TEST_CASE("two steps of SGD with momentum are those worked out by hand") {
  const std::array<double, 1> g{2.0};
  std::array<double, 1> buf{99.0};
  std::array<double, 1> w{1.0};
  const auto step = [&](bool first, double* buffer) {
    const math::SgdItem<double> item{1, first, g.data(), buffer, w.data()};
    sgd_steps<double>({&item, 1}, 0.125, 0.5);
  };
  step(true, buf.data());
  CHECK(buf[0] == 2.0);
  CHECK(w[0] == 0.75);
  step(false, buf.data());
  CHECK(buf[0] == 3.0);
  CHECK(w[0] == 0.375);
  step(false, nullptr);
  CHECK(w[0] == 0.125);
}

TEST_CASE("Adam's first step has the size of the learning rate whatever the gradient's") {
  for (const double gradient : {1e-3, 1.0, 1e4}) {
    double m = 0;
    double v = 0;
    double w = 1;
    std::int64_t steps = 0;
    const math::AdamItem<double> item{1, &steps, &gradient, &m, &v, &w};
    adam_steps<double>({&item, 1}, 0.01, 0.9, 0.999, 0.0);
    CHECK(steps == 1);
    CHECK(std::abs(w - 0.99) < 1e-14);
    CHECK(std::abs(m / gradient - 0.1) < 1e-15);
  }
}

}  // namespace
}  // namespace rematch::cpu
