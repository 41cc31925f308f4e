#pragma once

#include <cstdint>

#include "engine/math/bits.h"
#include "engine/math/host_device.h"

namespace rematch::math {

/// The upper half of a float32: sign, 8 bits of exponent, 7 of fraction, so a unit roundoff of
/// 2^-8. It is for keeping values, not for computing: kernels convert to float and back.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  /// Rounded to nearest, ties to even; too large becomes infinity, every NaN the same quiet one.
  REMATCH_HD explicit constexpr BFloat16(float value) : bits(rounded(value)) {}
  /// Rounded once, as if through no float32 in between.
  REMATCH_HD explicit constexpr BFloat16(double value) : BFloat16(to_odd(value)) {}

  /// Exact.
  REMATCH_HD explicit constexpr operator float() const {
    return detail::bits_as<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  REMATCH_HD explicit constexpr operator double() const {
    return static_cast<double>(static_cast<float>(*this));
  }

  /// The sum in float32, rounded: gradients are added up so.
  REMATCH_HD friend constexpr BFloat16 operator+(BFloat16 a, BFloat16 b) {
    return BFloat16(static_cast<float>(a) + static_cast<float>(b));
  }
  REMATCH_HD constexpr BFloat16& operator+=(BFloat16 other) { return *this = *this + other; }

 private:
  // No branches: loops over it vectorise.
  REMATCH_HD static constexpr std::uint16_t rounded(float value) {
    const auto u = detail::bits_as<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    // Half of the last place, less one where a tie is to round down to an even neighbour. A carry
    // out of the fraction is the next exponent, and out of the last exponent infinity.
    const std::uint32_t up = (u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U;
    return static_cast<std::uint16_t>(is_nan ? 0x7fc0U : up);
  }

  // Rounded to odd: an inexact result ends in 1, so that it is no tie of the rounding that follows
  // and lies on the side of it where `value` does.
  REMATCH_HD static constexpr float to_odd(double value) {
    const auto nearest = static_cast<float>(value);
    const auto back = static_cast<double>(nearest);
    if (back == value || value != value) return nearest;
    const bool away = value > 0 ? back > value : back < value;
    return detail::bits_as<float>((detail::bits_as<std::uint32_t>(nearest) - (away ? 1U : 0U)) |
                                  1U);
  }
};

}  // namespace rematch::math
