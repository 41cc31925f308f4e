#pragma once

// Elementary functions from + - * / and explicit fma alone, so that a value has the same bits on
// every machine, compiler and vector width; libm promises no such thing. No branches: loops over
// them vectorise. Compile with -ffp-contract=off (nvcc: -fmad=false).
//
// The coefficients are minimax fits (Remez exchange in 50-digit arithmetic) that
// engine/math/fit_elementary.py prints; the comment at each names the function and its fit error.

#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/math/bits.h"
#include "engine/math/host_device.h"

namespace rematch::math {

namespace detail {

template <typename T>
REMATCH_HD inline T polynomial(T /*x*/, T c0) {
  return c0;
}

/// c0 + c1 x + c2 x^2 + ... by Horner's rule in fma.
template <typename T, typename... Rest>
REMATCH_HD inline T polynomial(T x, T c0, Rest... rest) {
  return std::fma(x, polynomial(x, rest...), c0);
}

/// min and max that pass a NaN in x on.
template <typename T>
REMATCH_HD inline T at_most(T x, T limit) {
  return x > limit ? limit : x;
}
template <typename T>
REMATCH_HD inline T at_least(T x, T limit) {
  return x < limit ? limit : x;
}

REMATCH_HD inline double magnitude(double x) {
  return bits_as<double>(bits_as<std::uint64_t>(x) & 0x7fffffffffffffffU);
}
REMATCH_HD inline float magnitude(float x) {
  return bits_as<float>(bits_as<std::uint32_t>(x) & 0x7fffffffU);
}
REMATCH_HD inline double with_sign(double magnitude, double sign) {
  return bits_as<double>(bits_as<std::uint64_t>(magnitude) |
                         (bits_as<std::uint64_t>(sign) & 0x8000000000000000U));
}
REMATCH_HD inline float with_sign(float magnitude, float sign) {
  return bits_as<float>(bits_as<std::uint32_t>(magnitude) |
                        (bits_as<std::uint32_t>(sign) & 0x80000000U));
}

/// Adding this and taking it away again rounds to the nearest integer, and the sum's low bits are
/// that integer in two's complement.
inline constexpr double kRound = 0x1.8p52;
inline constexpr float kRoundF = 0x1.8p23F;

/// Device code may use constants of the host, but not call functions that return them.
template <typename T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <typename T>
inline constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

/// 2^n for an integer n in the exponent range of normal numbers.
REMATCH_HD inline double power_of_two(double n) {
  return bits_as<double>(bits_as<std::uint64_t>(n + (kRound + 1023.0)) << 52U);
}
REMATCH_HD inline float power_of_two(float n) {
  return bits_as<float>(bits_as<std::uint32_t>(n + (kRoundF + 127.0F)) << 23U);
}

/// x = n ln 2 + r with |r| <= ln 2 / 2, and expm1_r = exp(r) - 1. The fits are of
/// (exp(r) - 1 - r) / r^2 on that interval, error 1.1e-16 (double), 6.3e-8 (float). r is exact but
/// for its low part: fma(n, -hi, x) has no more bits than a significand holds.
template <typename T>
struct ReducedExp {
  T n;
  T expm1_r;
};
REMATCH_HD inline ReducedExp<double> reduce_exp(double x) {
  const double n = (x * 0x1.71547652b82fep+0 + kRound) - kRound;
  const double r = std::fma(n, -0x1.abc9e3b39803fp-56, std::fma(n, -0x1.62e42fefa39efp-1, x));
  const double p = polynomial(r, 0x1.0000000000001p-1, 0x1.5555555555558p-3, 0x1.5555555553d62p-5,
                              0x1.111111110f803p-7, 0x1.6c16c1788c041p-10, 0x1.a01a01b00c5e5p-13,
                              0x1.a019b90c995f5p-16, 0x1.71ddf6b378023p-19, 0x1.289185fb11237p-22,
                              0x1.af632b9d61f51p-26);
  return {n, std::fma(r * r, p, r)};
}
REMATCH_HD inline ReducedExp<float> reduce_exp(float x) {
  const float n = (x * 0x1.715476p+0F + kRoundF) - kRoundF;
  const float r = std::fma(n, 0x1.05c61p-29F, std::fma(n, -0x1.62e43p-1F, x));
  const float p =
      polynomial(r, 0x1.0p-1F, 0x1.5554dcp-3F, 0x1.5554b8p-5F, 0x1.120b72p-7F, 0x1.6d754cp-10F);
  return {n, std::fma(r * r, p, r)};
}

/// exp for x already within the range where 2^(n/2) is normal; two factors so that results may be
/// subnormal or infinite.
template <typename T>
REMATCH_HD inline T exp_in_range(T x, T round) {
  const ReducedExp<T> e = reduce_exp(x);
  const T n1 = (e.n * T(0.5) + round) - round;
  return (T(1) + e.expm1_r) * power_of_two(n1) * power_of_two(e.n - n1);
}

/// tanh(a) = expm1(2a) / (expm1(2a) + 2) for a in [0, 20].
template <typename T>
REMATCH_HD inline T tanh_in_range(T a) {
  const ReducedExp<T> e = reduce_exp(a + a);
  const T power = power_of_two(e.n);
  const T expm1 = std::fma(e.expm1_r, power, power - T(1));
  return expm1 / (expm1 + T(2));
}

}  // namespace detail

/// e^x within 2 ulp; +inf on overflow, subnormal and 0 on underflow.
REMATCH_HD inline double exp(double x) {
  return detail::exp_in_range(detail::at_least(detail::at_most(x, 710.0), -746.0), detail::kRound);
}
/// e^x within 2 float ulp.
REMATCH_HD inline float exp(float x) {
  return detail::exp_in_range(detail::at_least(detail::at_most(x, 89.0F), -104.0F),
                              detail::kRoundF);
}

/// Natural logarithm within 1 ulp; log(0) = -inf, NaN below 0.
///
/// x = 2^k m, m in [sqrt(1/2), sqrt(2)), f = m - 1, s = f / (2 + f), and log(1 + f) = 2 atanh(s)
/// = f - (f^2/2 - s (f^2/2 + R)) with R = s^2 P(s^2); P fits (2 atanh(s) - 2s) / s^3 with error
/// 3.1e-16.
REMATCH_HD inline double log(double x) {
  const bool tiny = x < 0x1p-1022;
  const double scaled = tiny ? x * 0x1p54 : x;
  const auto bits = detail::bits_as<std::uint64_t>(scaled);
  // Biased by 1024 so that a logical shift serves negative exponents.
  const std::uint64_t k = (bits + ((std::uint64_t{1024} << 52U) - 0x3fe6a09e667f3bcdU)) >> 52U;
  const double m = detail::bits_as<double>(bits - ((k - 1024) << 52U));
  const double bias = tiny ? 0x1p52 + 1078.0 : 0x1p52 + 1024.0;
  const double e = detail::bits_as<double>(k | 0x4330000000000000U) - bias;
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double half = 0.5 * f * f;
  const double r =
      z * detail::polynomial(z, 0x1.5555555555558p-1, 0x1.99999999951bep-2, 0x1.2492492e0f0a0p-2,
                             0x1.c71c62c2124c0p-3, 0x1.7462be2daf22cp-3, 0x1.39fd33e409440p-3,
                             0x1.2b662c5114cf3p-3);
  // e * hi is exact: hi = ln 2 cut to 42 bits.
  const double low = std::fma(s, half + r, e * 0x1.ef35793c76730p-45);
  const double y = e * 0x1.62e42fefa38p-1 + (f - (half - low));
  const double finite = x < detail::kInfinity<double> ? y : x;
  const double edge = x == 0.0 ? -detail::kInfinity<double> : detail::kNan<double>;
  return x > 0.0 ? finite : edge;
}
/// Natural logarithm within 1 float ulp, as above; fit error 1.2e-9.
REMATCH_HD inline float log(float x) {
  const bool tiny = x < 0x1p-126F;
  const float scaled = tiny ? x * 0x1p25F : x;
  const auto bits = detail::bits_as<std::uint32_t>(scaled);
  const std::uint32_t k = (bits + ((std::uint32_t{128} << 23U) - 0x3f3504f3U)) >> 23U;
  const float m = detail::bits_as<float>(bits - ((k - 128) << 23U));
  const float bias = tiny ? 0x1p23F + 153.0F : 0x1p23F + 128.0F;
  const float e = detail::bits_as<float>(k | 0x4b000000U) - bias;
  const float f = m - 1.0F;
  const float s = f / (2.0F + f);
  const float z = s * s;
  const float half = 0.5F * f * f;
  const float r =
      z * detail::polynomial(z, 0x1.555556p-1F, 0x1.9999ecp-2F, 0x1.245bf2p-2F, 0x1.ddde5p-3F);
  const float low = std::fma(s, half + r, e * 0x1.7f7d1cp-20F);
  const float y = e * 0x1.62e4p-1F + (f - (half - low));
  const float finite = x < detail::kInfinity<float> ? y : x;
  const float edge = x == 0.0F ? -detail::kInfinity<float> : detail::kNan<float>;
  return x > 0.0F ? finite : edge;
}

/// Hyperbolic tangent within 3 ulp.
REMATCH_HD inline double tanh(double x) {
  return detail::with_sign(detail::tanh_in_range(detail::at_most(detail::magnitude(x), 20.0)), x);
}
/// Hyperbolic tangent within 3 float ulp.
REMATCH_HD inline float tanh(float x) {
  return detail::with_sign(detail::tanh_in_range(detail::at_most(detail::magnitude(x), 10.0F)), x);
}

/// 1 / (1 + e^-x) within 3 ulp, through e^-|x| so that neither tail overflows.
template <typename T>
REMATCH_HD inline T sigmoid(T x) {
  const T e = exp(-detail::magnitude(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

/// The error function within 2 ulp. Below 1: x + x P(x^2), P fitting erf(x)/x - 1 with error
/// 7.2e-18. From 1 on: 1 - e^(-x^2) Q(s), s = 14.4 / (x + 3) - 2.6 mapping [1, 6] to [1, -1], Q
/// fitting erfc(x) e^(x^2) with error 6.4e-18 in erf.
REMATCH_HD inline double erf(double x) {
  const double a = detail::at_most(detail::magnitude(x), 6.0);
  const double z = a * a;
  const double p = detail::polynomial(
      z, 0x1.06eba8214db68p-3, -0x1.812746b0379c2p-2, 0x1.ce2f21a041017p-4, -0x1.b82ce31206283p-6,
      0x1.565bccfa9a25cp-8, -0x1.c02db072e9416p-11, 0x1.f9a2bf732fa56p-14, -0x1.f4ca9490b4fc4p-17,
      0x1.b9827ae1796bfp-20, -0x1.5c16e24d12804p-23, 0x1.d784916fc6e7dp-27, -0x1.acdffba421abfp-31);
  const double s = 14.4 / (a + 3.0) - 2.6;
  const double q = detail::polynomial(
      s, 0x1.a9f324d321d56p-3, 0x1.3c21b61aedcb7p-3, 0x1.972131b587269p-5, 0x1.a0959ccb123e9p-7,
      0x1.44f7fed19ac78p-9, 0x1.5bb605d37815ep-12, 0x1.4838a5e75711cp-16, -0x1.45a2f45b9ee58p-19,
      -0x1.2860b2681c677p-21, 0x1.75c7b82f88ebdp-30, 0x1.e2652af34ade5p-27, -0x1.12a23241b981bp-30);
  const double small = std::fma(a, p, a);
  const double large = std::fma(-exp(-z), q, 1.0);
  return detail::with_sign(a < 1.0 ? small : large, x);
}
/// The error function within 2 float ulp. Below 1 as above (fit error 1.2e-9); from 1 on
/// 1 - e^L(x), L fitting log(erfc(x)) on [1, 4] with error 1.1e-9 in erf.
REMATCH_HD inline float erf(float x) {
  const float a = detail::at_most(detail::magnitude(x), 4.0F);
  const float p =
      detail::polynomial(a * a, 0x1.06eba8p-3F, -0x1.81273ep-2F, 0x1.ce2d2p-4F, -0x1.b7fbb4p-6F,
                         0x1.5419f4p-8F, -0x1.a485ecp-11F, 0x1.4ae4cep-14F);
  const float l =
      detail::polynomial(a, -0x1.72e7b4p-12F, -0x1.2085b2p+0F, -0x1.46c584p-1F, -0x1.a60a7ep-4F,
                         0x1.654216p-6F, -0x1.814cc2p-9F, 0x1.852d2p-13F);
  const float small = std::fma(a, p, a);
  const float large = 1.0F - exp(l);
  return detail::with_sign(a < 1.0F ? small : large, x);
}

/// Phi(x) = (1 + erf(x / sqrt(2))) / 2, the normal distribution function, to an absolute error of
/// 2 ulp of 1: the lower tail has no relative accuracy.
template <typename T>
REMATCH_HD inline T normal_cdf(T x) {
  return std::fma(T(0.5), erf(x * T(0x1.6a09e667f3bcdp-1)), T(0.5));
}

/// phi(x) = e^(-x^2/2) / sqrt(2 pi), the normal density.
template <typename T>
REMATCH_HD inline T normal_pdf(T x) {
  return exp(T(-0.5) * x * x) * T(0x1.9884533d43651p-2);
}

/// x Phi(x). Far tails are cut at |x| = 40, where they have long vanished, so -inf gives -0.
template <typename T>
REMATCH_HD inline T gelu(T x) {
  return detail::at_least(x, T(-40)) * normal_cdf(x);
}

/// The derivative of gelu: Phi(x) + x phi(x).
template <typename T>
REMATCH_HD inline T gelu_derivative(T x) {
  const T clamped = detail::at_least(detail::at_most(x, T(40)), T(-40));
  return std::fma(clamped, normal_pdf(clamped), normal_cdf(x));
}

/// x sigmoid(x) within 7 ulp where sigmoid(x) is no subnormal: its 3 ulp are 6 half ulps at most,
/// the product one more, and a half ulp of one number is an ulp of another. The tail is cut at
/// -750, where it has long vanished, so -inf gives -0.
template <typename T>
REMATCH_HD inline T silu(T x) {
  return detail::at_least(x, T(-750)) * sigmoid(x);
}

/// The derivative of silu, s (1 + x c) with s = sigmoid(x) and c = sigmoid(-x) = 1 - s, to an
/// absolute error of 11 half ulps of 1: s and c are within 6 half ulps, |x| s c is below 0.23, the
/// derivative below 1.1, and it has two roundings more.
template <typename T>
REMATCH_HD inline T silu_derivative(T x) {
  const T clamped = detail::at_least(detail::at_most(x, T(750)), T(-750));
  return sigmoid(x) * std::fma(clamped, sigmoid(-x), T(1));
}

/// cos(2 pi u) and sin(2 pi u) for |u| <= 2^40, each within 2^-52 absolutely.
///
/// u = q/4 + r with |r| <= 1/8 exactly; the fits in r^2 are of sin(2 pi r) / r, error 2.0e-17, and
/// (cos(2 pi r) - 1) / r^2, error 7.8e-18; q mod 4 picks, swaps and signs them.
struct CosSin {
  double cos;
  double sin;
};
REMATCH_HD inline CosSin cos_sin_two_pi(double u) {
  const double shifted = u * 4.0 + detail::kRound;
  const auto quadrant = detail::bits_as<std::uint64_t>(shifted);
  const double r = u - (shifted - detail::kRound) * 0.25;
  const double z = r * r;
  const double s =
      r * detail::polynomial(z, 0x1.921fb54442d18p+2, -0x1.4abbce625be41p+5, 0x1.466bc677587f9p+6,
                             -0x1.32d2cce2e5b8bp+6, 0x1.50782fda1087dp+5, -0x1.e30071a591c7bp+3,
                             0x1.e3f37d7cd1502p+1);
  const double c = std::fma(
      z,
      detail::polynomial(z, -0x1.3bd3cc9be45dep+4, 0x1.03c1f081b5ac0p+6, -0x1.55d3c7e3cb241p+6,
                         0x1.e1f5068688d32p+5, -0x1.a6d1eef470155p+4, 0x1.f9ce244db27f5p+2,
                         -0x1.b2f3e3e4f4ba1p+0),
      1.0);
  const auto s_bits = detail::bits_as<std::uint64_t>(s);
  const auto c_bits = detail::bits_as<std::uint64_t>(c);
  // All ones where the quadrant is odd: there cosine and sine trade places.
  const std::uint64_t swap = std::uint64_t{0} - (quadrant & 1U);
  const std::uint64_t trade = (s_bits ^ c_bits) & swap;
  const std::uint64_t cos_sign = (((quadrant + 1U) >> 1U) & 1U) << 63U;
  const std::uint64_t sin_sign = ((quadrant >> 1U) & 1U) << 63U;
  return {detail::bits_as<double>((c_bits ^ trade) ^ cos_sign),
          detail::bits_as<double>((s_bits ^ trade) ^ sin_sign)};
}

/// The two standard normals Box and Muller (1958) make of uniforms u and v in (0, 1):
/// sqrt(-2 log u) times cos and sin of 2 pi v.
REMATCH_HD inline CosSin box_muller(double u, double v) {
  const double radius = std::sqrt(-2.0 * log(u));
  const CosSin angle = cos_sin_two_pi(v);
  return {radius * angle.cos, radius * angle.sin};
}

}  // namespace rematch::math
