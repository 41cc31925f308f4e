#include "engine/math/bfloat16.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/kernels/cast.h"
#include "engine/random/philox.h"

namespace rematch::math {
namespace {

using detail::bits_as;

BFloat16 from_bits(std::uint32_t bits) {
  BFloat16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

float float_of(std::uint32_t bits) { return bits_as<float>(bits); }

/// Rounding in double by the definition, without a look at bits: the multiple of the last place
/// that is nearest, ties to even (nearbyint's default), below the overflow threshold.
double rounded(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  (void)std::frexp(x, &exponent);
  // 8 bits of significand; below 2^-126 the last place stays that of the smallest number.
  const int last_place = std::max(exponent - 8, -133);
  const double nearest = std::ldexp(std::nearbyint(std::ldexp(x, -last_place)), last_place);
  const double largest = std::ldexp(255.0, 120);
  if (std::abs(nearest) > largest) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return nearest;
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

TEST_CASE("every bfloat16 is the float32 with its bits above sixteen zeros") {
  std::int64_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const BFloat16 value = from_bits(bits);
    wrong += bits_as<std::uint32_t>(static_cast<float>(value)) != bits << 16U;
    // By the fields: a sign, 8 bits of exponent, 7 of fraction.
    const double sign = bits >> 15U != 0 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 7U & 0xffU);
    const double fraction = bits & 0x7fU;
    const double want = exponent == 0xff
                            ? (fraction == 0 ? std::numeric_limits<double>::infinity()
                                             : std::numeric_limits<double>::quiet_NaN())
                            : std::ldexp(exponent == 0 ? fraction : 128 + fraction,
                                         (exponent == 0 ? 1 : exponent) - 127 - 7);
    wrong += !same(static_cast<double>(value), sign * want);
  }
  CHECK(wrong == 0);
}

TEST_CASE("bfloat16 to float32 and back gives the same bits, and every NaN becomes one NaN") {
  std::int64_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const BFloat16 value = from_bits(bits);
    const std::uint32_t want = (bits & 0x7fffU) > 0x7f80U ? 0x7fc0U : bits;
    wrong += BFloat16(static_cast<float>(value)).bits != want;
    wrong += BFloat16(static_cast<double>(value)).bits != want;
  }
  CHECK(wrong == 0);
}

TEST_CASE("between two neighbours the nearer is taken, and the even one from the middle") {
  std::int64_t wrong = 0;
  // Every finite bfloat16 and the next: what lies below, on, and above the middle.
  for (std::uint32_t bits = 0; bits < 0x7f80U; ++bits) {
    const std::uint32_t low = bits << 16U;
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const auto down = [&](std::uint32_t above) {
        return BFloat16(float_of(sign | (low + above))).bits;
      };
      const auto expect = [&](std::uint32_t above, std::uint32_t want) {
        wrong += down(above) != static_cast<std::uint16_t>(want | sign >> 16U);
      };
      expect(0x0001U, bits);
      expect(0x7fffU, bits);
      expect(0x8000U, bits + (bits & 1U));
      expect(0x8001U, bits + 1);
      expect(0xffffU, bits + 1);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("what is too large becomes infinity, what is too small zero, with its sign") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(BFloat16(inf).bits == 0x7f80);
  CHECK(BFloat16(-inf).bits == 0xff80);
  CHECK(BFloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(BFloat16(float_of(0x7f7f7fffU)).bits == 0x7f7f);
  CHECK(BFloat16(float_of(0x7f7f8000U)).bits == 0x7f80);
  CHECK(BFloat16(1e300).bits == 0x7f80);
  CHECK(BFloat16(-1e300).bits == 0xff80);
  CHECK(BFloat16(-0.0F).bits == 0x8000);
  CHECK(BFloat16(float_of(0x00000001U)).bits == 0);
  CHECK(BFloat16(float_of(0x80000001U)).bits == 0x8000);
  CHECK(BFloat16(1e-300).bits == 0);
  CHECK(BFloat16(-1e-300).bits == 0x8000);
  // Half of the smallest subnormal is a tie with zero; a little more is not.
  CHECK(BFloat16(0x1p-134).bits == 0);
  CHECK(BFloat16(0x1.0000000000001p-134).bits == 1);
}

TEST_CASE("every kind of NaN becomes the one quiet NaN") {
  for (const std::uint32_t bits :
       {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffc00000U, 0xffffffffU}) {
    CHECK(BFloat16(float_of(bits)).bits == 0x7fc0);
    CHECK(BFloat16(static_cast<double>(float_of(bits))).bits == 0x7fc0);
  }
}

TEST_CASE("random float32 and float64 are rounded as the definition says") {
  const PhiloxStream stream{20240607, 3};
  std::int64_t wrong = 0;
  for (std::uint64_t i = 0; i < 400000; ++i) {
    const std::uint32_t word = stream.word(3 * i);
    const float f = float_of(word);
    wrong += !same(static_cast<double>(BFloat16(f)), rounded(static_cast<double>(f)));
    // Any fraction, and an exponent for which bfloat16 has something to say.
    const std::uint64_t low = stream.word(3 * i + 1);
    const std::uint64_t fraction =
        (low << 20U | static_cast<std::uint64_t>(stream.word(3 * i + 2)) >> 12U) &
        0xfffffffffffffULL;
    const std::uint64_t exponent = 1023 - 140 + word % 270;
    const std::uint64_t sign = static_cast<std::uint64_t>(word >> 31U) << 63U;
    const auto d = bits_as<double>(sign | exponent << 52U | fraction);
    wrong += !same(static_cast<double>(BFloat16(d)), rounded(d));
  }
  CHECK(wrong == 0);
}

TEST_CASE("a float64 is rounded once, not by way of float32") {
  // In float32 this is the tie 1 + 2^-8, which goes down to the even 1.
  CHECK(BFloat16(1 + 0x1p-8 + 0x1p-40).bits == 0x3f81);
  CHECK(BFloat16(1 + 0x1p-8).bits == 0x3f80);
  // And this the tie 1 + 3 2^-8, which goes up.
  CHECK(BFloat16(1 + 0x3p-8 - 0x1p-40).bits == 0x3f81);
  CHECK(BFloat16(-1 - 0x3p-8 + 0x1p-40).bits == 0xbf81);
}

TEST_CASE("a sum is that of float32, rounded") {
  const PhiloxStream stream{5, 1};
  std::int64_t wrong = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const std::uint32_t word = stream.word(i);
    const BFloat16 a = from_bits(word & 0xffffU);
    const BFloat16 b = from_bits(word >> 16U);
    const float sum = static_cast<float>(a) + static_cast<float>(b);
    BFloat16 c = a;
    c += b;
    wrong += (a + b).bits != BFloat16(sum).bits;
    wrong += c.bits != BFloat16(sum).bits;
  }
  CHECK(wrong == 0);
  CHECK((BFloat16(1.0F) + BFloat16(0x1p-8F)).bits == 0x3f80);
  CHECK((BFloat16(1.0F) + BFloat16(0x1.8p-8F)).bits == 0x3f81);
}

TEST_CASE("the cast kernels convert element by element, whatever the length") {
  std::vector<float> up(0x10000);
  std::vector<BFloat16> all(0x10000);
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) all[bits] = from_bits(bits);
  for (const std::int64_t n : {0, 1, 7, 8, 15, 16, 33, 1000, 0x10000}) {
    std::fill(up.begin(), up.end(), -1.0F);
    cpu::upcast(n, all.data(), up.data());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < 0x10000; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const float want = i < n ? static_cast<float>(all[at]) : -1.0F;
      wrong += bits_as<std::uint32_t>(up[at]) != bits_as<std::uint32_t>(want);
    }
    CHECK(wrong == 0);
  }
  // Every high half with a low half of its own: ties, near misses, NaN of every kind.
  std::vector<float> in(0x20000);
  for (std::uint32_t i = 0; i < in.size(); ++i) {
    in[i] = float_of((i >> 1U) << 16U | ((i & 1U) != 0 ? 0x8000U : i * 40503U & 0xffffU));
  }
  std::vector<BFloat16> out(in.size());
  cpu::downcast(static_cast<std::int64_t>(in.size()), in.data(), out.data());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < in.size(); ++i) wrong += out[i].bits != BFloat16(in[i]).bits;
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace rematch::math
