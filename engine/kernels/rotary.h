#pragma once

#include "engine/kernels/declare.h"
#include "engine/math/rotary.h"

namespace rematch {

/// y = x with its heads' features rotated by their positions, forwards or (`direction` -1) back;
/// other features are copied. One launch on the device.
REMATCH_DECLARE(void rotary(const math::RotaryShape& s, double direction, const T* x, T* y));

#define REMATCH_ROTARY_KERNELS(K) K(rotary)

}  // namespace rematch
