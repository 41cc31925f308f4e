#pragma once

#include "engine/math/host_device.h"

namespace rematch::math::detail {

/// std::bit_cast, which device code cannot call.
template <typename To, typename From>
REMATCH_HD constexpr To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

}  // namespace rematch::math::detail
