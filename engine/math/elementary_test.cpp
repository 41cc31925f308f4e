#include "engine/math/elementary.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/random/philox.h"

namespace rematch::math {
namespace {

/// How many units in the last place of the exact value `got` is off.
template <typename T>
double ulps(T got, long double exact) {
  using Limits = std::numeric_limits<T>;
  int exponent = 0;
  (void)std::frexp(static_cast<T>(exact), &exponent);
  const int unit = std::max(exponent, Limits::min_exponent) - Limits::digits;
  return static_cast<double>(
      std::fabs((static_cast<long double>(got) - exact) / std::ldexp(1.0L, unit)));
}

/// The worst error over 200000 points of [low, high]; with `logarithmic`, over +-e^[low, high].
template <typename T, typename F, typename Exact>
double worst(const F& f, const Exact& exact, double low, double high, bool logarithmic = false) {
  double result = 0;
  const PhiloxStream stream{7, 0};
  for (std::uint64_t i = 0; i < 200000; ++i) {
    double v = low + (high - low) * uniform_double(stream.word(i));
    if (logarithmic) v = (i % 2 == 0 ? 1.0 : -1.0) * std::exp(v);
    const T x = static_cast<T>(v);
    const double error = ulps<T>(f(x), exact(static_cast<long double>(x)));
    result = error <= result ? result : error;
  }
  return result;
}

// Each limit is the fit error (well below 0.2 ulp) and half an ulp for every rounding that a
// result's own magnitude sees. exp: the polynomial's end, 1 + p. log: the reduction's two sums.
// tanh: expm1, its sum with 2, the quotient. erf: one fma, and the product it adds to. sigmoid:
// exp, the sum, the quotient.
template <typename T>
void check_accuracy(double exp_low, double exp_high) {
  const auto exact_exp = [](long double x) { return std::exp(x); };
  const auto exact_tanh = [](long double x) { return std::tanh(x); };
  const auto exact_erf = [](long double x) { return std::erf(x); };
  CHECK(worst<T>([](T x) { return exp(x); }, exact_exp, exp_low, exp_high) < 2);
  CHECK(worst<T>([](T x) { return exp(x); }, exact_exp, -1, 1) < 2);
  CHECK(worst<T>([](T x) { return log(x); }, [](long double x) { return std::log(x); }, 0.3, 3) <
        1);
  CHECK(worst<T>([](T x) { return log(x < 0 ? -x : x); },
                 [](long double x) { return std::log(std::fabs(x)); }, exp_low, exp_high,
                 true) < 1);
  CHECK(worst<T>([](T x) { return tanh(x); }, exact_tanh, -3, 3) < 3);
  CHECK(worst<T>([](T x) { return tanh(x); }, exact_tanh, -80, 3, true) < 3);
  CHECK(worst<T>([](T x) { return erf(x); }, exact_erf, -6, 6) < 2);
  CHECK(worst<T>([](T x) { return erf(x); }, exact_erf, -80, 2, true) < 2);
  CHECK(worst<T>([](T x) { return sigmoid(x); },
                 [](long double x) { return 1 / (1 + std::exp(-x)); }, -80, 20) < 3);
}

TEST_CASE("elementary functions stay within their stated ulps of the exact value") {
  check_accuracy<double>(-744, 709.7);
  check_accuracy<float>(-103, 88.7);
}

template <typename T>
void check_edges() {
  const T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  CHECK(exp(inf) == inf);
  CHECK(exp(T(1000)) == inf);
  CHECK(exp(-inf) == 0);
  CHECK(exp(T(-1000)) == 0);
  CHECK(exp(T(0)) == 1);
  CHECK(log(inf) == inf);
  CHECK(log(T(0)) == -inf);
  CHECK(log(T(-0.0)) == -inf);
  CHECK(log(T(1)) == 0);
  CHECK(std::isnan(log(T(-1))));
  CHECK(std::isnan(log(-inf)));
  CHECK(tanh(inf) == 1);
  CHECK(tanh(-inf) == -1);
  CHECK(std::signbit(tanh(T(-0.0))));
  CHECK(erf(inf) == 1);
  CHECK(erf(-inf) == -1);
  CHECK(std::signbit(erf(T(-0.0))));
  CHECK(sigmoid(inf) == 1);
  CHECK(sigmoid(-inf) == 0);
  CHECK(sigmoid(T(0)) == T(0.5));
  CHECK(gelu(inf) == inf);
  CHECK(gelu(-inf) == 0);
  CHECK(gelu_derivative(inf) == 1);
  CHECK(gelu_derivative(-inf) == 0);
  CHECK(silu(inf) == inf);
  CHECK(silu(-inf) == 0);
  CHECK(silu(T(-1000)) == 0);
  CHECK(silu_derivative(inf) == 1);
  CHECK(silu_derivative(-inf) == 0);
  CHECK(silu_derivative(T(0)) == T(0.5));
  for (const T value : {exp(nan), log(nan), tanh(nan), erf(nan), sigmoid(nan), gelu(nan),
                        gelu_derivative(nan), silu(nan), silu_derivative(nan)}) {
    CHECK(std::isnan(value));
  }
  const T smallest = std::numeric_limits<T>::denorm_min();
  CHECK(tanh(smallest) == smallest);
  CHECK(ulps<T>(log(smallest), std::log(static_cast<long double>(smallest))) < 1);
}

TEST_CASE("elementary functions take zeros, infinities, NaN and subnormals to their limits") {
  check_edges<float>();
  check_edges<double>();
}

TEST_CASE("gelu and its derivative match their formulas") {
  for (double x = -9; x <= 9; x += 0.01) {
    const double cdf = 0.5 * std::erfc(-x / std::sqrt(2.0));
    const double pdf = std::exp(-0.5 * x * x) / std::sqrt(2 * 3.14159265358979323846);
    // normal_cdf is good to 2 ulp of 1; x multiplies that, and phi's exponent has 2 roundings of
    // up to 40 ulp times phi <= 0.4.
    CHECK(std::abs(gelu(x) - x * cdf) <= 9 * 0x1p-51);
    CHECK(std::abs(gelu_derivative(x) - (cdf + x * pdf)) <= 9 * 0x1p-51);
  }
}

template <typename T>
void check_silu() {
  CHECK(worst<T>([](T x) { return silu(x); }, [](long double x) { return x / (1 + std::exp(-x)); },
                 -80, 20) < 7);
  double largest = 0;
  for (int i = -80000; i <= 80000; ++i) {
    const T x = static_cast<T>(i) / T(1000);
    const auto wide = static_cast<long double>(x);
    const long double s = 1 / (1 + std::exp(-wide));
    const long double exact = s * (1 + wide / (1 + std::exp(wide)));
    const auto error = static_cast<double>(std::fabs(silu_derivative(x) - exact));
    largest = error <= largest ? largest : error;
  }
  CHECK(largest <= 11 * static_cast<double>(std::numeric_limits<T>::epsilon()) / 2);
}

TEST_CASE("silu and its derivative stay within their stated errors, far tails included") {
  check_silu<float>();
  check_silu<double>();
}

TEST_CASE("cosine and sine of a turn lie on the circle and hit the quarters exactly") {
  const double quarters[][3] = {{0, 1, 0}, {0.25, 0, 1}, {0.5, -1, 0}, {0.75, 0, -1}, {1, 1, 0}};
  for (const auto& q : quarters) {
    CHECK(cos_sin_two_pi(q[0]).cos == q[1]);
    CHECK(cos_sin_two_pi(q[0]).sin == q[2]);
  }
  const long double turn = 2 * 3.141592653589793238462643383279503L;
  const PhiloxStream stream{3, 0};
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = uniform_double(stream.word(i));
    const CosSin p = cos_sin_two_pi(u);
    CHECK(std::fabs(static_cast<double>(p.cos - std::cos(turn * u))) < 0x1p-52);
    CHECK(std::fabs(static_cast<double>(p.sin - std::sin(turn * u))) < 0x1p-52);
  }
}

TEST_CASE("a value has the same bits alone and in a vectorised loop") {
  std::vector<float> in;
  for (int i = -4000; i < 4003; ++i) in.push_back(static_cast<float>(i) * 0.0137F);
  std::vector<float> out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = gelu_derivative(in[i]) + log(in[i]);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const volatile float alone = in[i];
    const float again = gelu_derivative(float{alone}) + log(float{alone});
    if (!(again == out[i] || (std::isnan(again) && std::isnan(out[i])))) ++differing;
  }
  CHECK(differing == 0);
}

}  // namespace
}  // namespace rematch::math
