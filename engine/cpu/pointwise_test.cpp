#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/cpu/testing/values.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/concat.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/loss.h"
#include "engine/kernels/optimizer.h"

namespace rematch::cpu {
namespace {

using testing::distance;
using testing::same_bits;
using testing::values;

constexpr std::int64_t kSizes[] = {1, 7, 16, 33, 1024, 2500};

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

template <typename T, typename Exact>
double worst_against(const std::vector<T>& in, const std::vector<T>& out, const Exact& exact) {
  std::vector<double> want;
  for (const T v : in) want.push_back(exact(static_cast<double>(v)));
  return distance(out, want);
}

template <typename T>
void check_smooth_activations() {
  // Outputs are below 4 in magnitude and a few ulp off.
  const double bound = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
  auto x = values<T>(1003, 1);
  for (T& v : x) v *= T(4);
  std::vector<T> y(x.size());
  std::vector<T> gx(x.size());
  const std::vector<T> ones(x.size(), T(1));
  const auto n = static_cast<std::int64_t>(x.size());
  gelu_forward(n, x.data(), y.data());
  CHECK(worst_against(x, y, [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); }) <=
        bound);
  gelu_backward(n, ones.data(), x.data(), gx.data());
  CHECK(worst_against(x, gx, [](double v) {
          return 0.5 * std::erfc(-v / std::sqrt(2.0)) +
                 v * std::exp(-v * v / 2) / std::sqrt(2 * 3.14159265358979323846);
        }) <= bound);
  silu_forward(n, x.data(), y.data());
  CHECK(worst_against(x, y, [](double v) { return v / (1 + std::exp(-v)); }) <= bound);
  silu_backward(n, ones.data(), x.data(), gx.data());
  CHECK(worst_against(x, gx, [](double v) {
          return (1 + v / (1 + std::exp(v))) / (1 + std::exp(-v));
        }) <= bound);
  tanh_forward(n, x.data(), y.data());
  CHECK(worst_against(x, y, [](double v) { return std::tanh(v); }) <= bound);
  tanh_backward(n, ones.data(), y.data(), gx.data());
  CHECK(worst_against(x, gx, [](double v) { return 1 - std::pow(std::tanh(v), 2); }) <= bound);
  sigmoid_forward(n, x.data(), y.data());
  CHECK(worst_against(x, y, [](double v) { return 1 / (1 + std::exp(-v)); }) <= bound);
  sigmoid_backward(n, ones.data(), y.data(), gx.data());
  CHECK(worst_against(x, gx, [](double v) { return 1 / (1 + std::exp(-v)) / (1 + std::exp(v)); }) <=
        bound);
}

TEST_CASE("gelu, silu, tanh, sigmoid and their gradients match libm") {
  check_smooth_activations<float>();
  check_smooth_activations<double>();
}

template <typename T>
void check_rows(std::int64_t rows, std::int64_t cols) {
  CAPTURE(rows, cols);
  const double bound = 40 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const auto width = static_cast<std::size_t>(cols);
  auto x = values<T>(rows * cols, 1);
  for (T& v : x) v *= T(5);
  const auto gy = values<T>(rows * cols, 2);
  std::vector<std::int32_t> target;
  for (std::int64_t r = 0; r < rows; ++r) target.push_back(static_cast<std::int32_t>(r % cols));
  std::vector<double> soft(x.size());
  std::vector<double> log_soft(x.size());
  std::vector<double> soft_gx(x.size());
  std::vector<double> loss_gx(x.size());
  double loss = 0;
  for (std::size_t first = 0; first < x.size(); first += width) {
    double total = 0;
    double dot = 0;
    for (std::size_t i = first; i < first + width; ++i)
      total += std::exp(static_cast<double>(x[i]));
    for (std::size_t i = first; i < first + width; ++i) {
      log_soft[i] = static_cast<double>(x[i]) - std::log(total);
      soft[i] = std::exp(log_soft[i]);
      dot += soft[i] * static_cast<double>(gy[i]);
    }
    const auto row = first / width;
    const std::size_t hit = first + static_cast<std::size_t>(target[row]);
    for (std::size_t i = first; i < first + width; ++i) {
      soft_gx[i] = soft[i] * (static_cast<double>(gy[i]) - dot);
      loss_gx[i] = 3 * (soft[i] - (i == hit ? 1 : 0)) / static_cast<double>(rows);
    }
    loss -= log_soft[hit] / static_cast<double>(rows);
  }
  std::vector<T> y(x.size());
  std::vector<T> gx(x.size());
  softmax_forward(rows, cols, x.data(), y.data());
  CHECK(distance(y, soft) <= bound);
  softmax_backward(rows, cols, gy.data(), y.data(), gx.data());
  CHECK(distance(gx, soft_gx) <= bound);
  T got = 0;
  cross_entropy_forward(rows, cols, x.data(), target.data(), y.data(), &got);
  CHECK(std::abs(static_cast<double>(got) - loss) <= bound);
  CHECK(distance(y, log_soft) <= bound);
  const T three = 3;
  cross_entropy_backward(rows, cols, &three, y.data(), target.data(), gx.data());
  CHECK(distance(gx, loss_gx) <= bound);
}

TEST_CASE("softmax and cross entropy match their formulas") {
  check_rows<float>(8, 10);
  check_rows<float>(3, 67);
  check_rows<double>(5, 3);
  check_rows<double>(2, 1100);
  check_rows<double>(1, 1);
}

TEST_CASE("softmax of huge inputs neither overflows nor loses its sum") {
  const std::array<float, 3> x{1e30F, 1e30F, -1e30F};
  std::array<float, 3> y{};
  softmax_forward<float>(1, 3, x.data(), y.data());
  CHECK(y == std::array<float, 3>{0.5F, 0.5F, 0.0F});
}

template <typename T>
void check_elementwise() {
  for (const std::int64_t n : kSizes) {
    const auto a = values<T>(n, 1);
    const auto b = values<T>(n, 2);
    std::vector<T> want(a.size());
    std::vector<T> out(a.size());
    const auto expect = [&](const auto& f) {
      for (std::size_t i = 0; i < a.size(); ++i) want[i] = f(a[i], b[i]);
      CHECK(same_bits(out, want));
    };
    add(n, a.data(), b.data(), out.data());
    expect([](T u, T v) { return u + v; });
    scale(n, a.data(), T(0.3), out.data());
    expect([](T u, T) { return u * T(0.3); });
    out = b;
    add_inplace(n, a.data(), out.data());
    expect([](T u, T v) { return v + u; });
    out = a;
    scale_inplace(n, T(0.3), out.data());
    expect([](T u, T) { return u * T(0.3); });
    fill(n, T(5), out.data());
    expect([](T, T) { return T(5); });

    // A lane adds at most 64 terms below 1 before the tree's 4 levels; blocks add in double.
    const double bound =
        static_cast<double>(n) * 70 * static_cast<double>(std::numeric_limits<T>::epsilon());
    double total = 0;
    double errors = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto u = static_cast<double>(a[i]);
      const auto v = static_cast<double>(b[i]);
      total += u;
      errors += (u - v) * (u - v) / static_cast<double>(n);
      want[i] = T(3) * (T(2) / static_cast<T>(n)) * (a[i] - b[i]);
    }
    T got = 0;
    sum(n, a.data(), &got);
    CHECK(std::abs(static_cast<double>(got) - total) <= bound);
    mse_forward(n, a.data(), b.data(), &got);
    CHECK(std::abs(static_cast<double>(got) - errors) <= bound);
    const T three = 3;
    mse_backward(n, &three, a.data(), b.data(), out.data());
    CHECK(same_bits(out, want));
  }
}

TEST_CASE("elementwise kernels compute each element as written, and sums stay close") {
  check_elementwise<float>();
  check_elementwise<double>();
}

TEST_CASE("splitting undoes concatenation") {
  const auto a = values<float>(3 * 5, 1);
  const auto b = values<float>(3 * 2, 2);
  std::vector<float> joined(a.size() + b.size());
  concat2<float>(3, 5, 2, a.data(), b.data(), joined.data());
  CHECK(joined[5] == b[0]);
  CHECK(joined[7] == a[5]);
  std::vector<float> a2(a.size());
  std::vector<float> b2(b.size());
  split2<float>(3, 5, 2, joined.data(), a2.data(), nullptr);
  split2<float>(3, 5, 2, joined.data(), nullptr, b2.data());
  CHECK(a2 == a);
  CHECK(b2 == b);
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

TEST_CASE("Adam follows its formula over several steps") {
  double m = 0;
  double v = 0;
  double w = 1;
  double want_m = 0;
  double want_v = 0;
  double want = 1;
  std::int64_t steps = 0;
  for (std::int64_t t = 1; t <= 50; ++t) {
    const double g = std::sin(static_cast<double>(t));
    const math::AdamItem<double> item{1, &steps, &g, &m, &v, &w};
    adam_steps<double>({&item, 1}, 0.01, 0.9, 0.999, 1e-8);
    want_m = 0.9 * want_m + 0.1 * g;
    want_v = 0.999 * want_v + 0.001 * g * g;
    const auto step = static_cast<double>(t);
    want -= 0.01 * (want_m / (1 - std::pow(0.9, step))) /
            (std::sqrt(want_v / (1 - std::pow(0.999, step))) + 1e-8);
    CHECK(std::abs(w - want) < 1e-13);
  }
  CHECK(math::integer_power(3, 0) == 1);
  CHECK(math::integer_power(3, 13) == 1594323);
}

}  // namespace
}  // namespace rematch::cpu
