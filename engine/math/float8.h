#pragma once

// Rounding to float8 e4m3, for every backend: one source, so the same bits.

#include <cstdint>

#include "engine/math/elementary.h"
#include "engine/math/host_device.h"

namespace rematch::math {

/// The largest number of float8 e4m3: a sign, 4 bits of exponent, 3 of fraction, and no infinity.
/// Normal numbers begin at 2^-6; below that, they are multiples of 2^-9.
inline constexpr double kLargestFloat8 = 448;

/// The nearest number of float8 e4m3, ties to even; a larger one becomes the largest. NaN stays
/// NaN. A double is rounded to float first, as PyTorch does: a tie of that rounding may decide.
template <typename T>
REMATCH_HD inline T rounded_to_float8(T x) {
  const T limit = T(kLargestFloat8);
  const auto within = static_cast<float>(detail::at_least(detail::at_most(x, limit), -limit));
  const float size = detail::magnitude(within);
  const float power = detail::at_least(
      detail::bits_as<float>(detail::bits_as<std::uint32_t>(size) & 0x7f800000U), 0x1p-6F);
  // A number of that size ends in a place of power * 2^-3, which is the last place of this one.
  const float coarse = power * 0x1p20F;
  return static_cast<T>(detail::with_sign((size + coarse) - coarse, within));
}

}  // namespace rematch::math
