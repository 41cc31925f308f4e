#pragma once

#include <cstdint>

#include "engine/math/elementary.h"
#include "engine/math/host_device.h"

namespace rematch::math {

/// Operand of rotary positions: x[batch, positions, width], whose first `features` are those of
/// `heads` heads, each of an even number.
struct RotaryShape {
  std::int64_t batch = 1;
  std::int64_t positions = 1;
  std::int64_t width = 2;
  std::int64_t features = 2;
  std::int64_t heads = 1;

  REMATCH_HD constexpr std::int64_t size() const { return features / heads; }
  /// Rotations of a position, each for a pair of features of every head.
  REMATCH_HD constexpr std::int64_t pairs() const { return size() / 2; }
  REMATCH_HD constexpr std::int64_t row_at(std::int64_t b, std::int64_t position) const {
    return (b * positions + position) * width;
  }
};

/// Cosine and sine of position * 10000^(-2 pair / size) (Su et al. 2021, RoFormer, section 3.4.2).
REMATCH_HD inline CosSin rotation(std::int64_t position, std::int64_t pair, std::int64_t size) {
  constexpr double kLog10000 = 0x1.26bb1bbb55516p+3;
  constexpr double kTurn = 0x1.921fb54442d18p+2;
  const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(size);
  const double radians = static_cast<double>(position) * exp(-kLog10000 * exponent);
  return cos_sin_two_pi(radians / kTurn);
}

/// Rotates the pair (x[0], x[half]) into y; backwards if `direction` is -1.
template <typename T>
REMATCH_HD inline void rotate(const CosSin& by, double direction, std::int64_t half, const T* x,
                              T* y) {
  const T cos = static_cast<T>(by.cos);
  const T sin = static_cast<T>(direction * by.sin);
  const T first = x[0] * cos - x[half] * sin;
  y[half] = x[half] * cos + x[0] * sin;
  y[0] = first;
}

}  // namespace rematch::math
