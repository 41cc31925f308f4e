#pragma once

#include "engine/math/rotary.h"

namespace rematch::cpu {

/// y = x with its heads' features rotated by their positions, forwards or (`direction` -1) back;
/// other features are copied.
template <typename T>
void rotary(const math::RotaryShape& s, double direction, const T* x, T* y);

}  // namespace rematch::cpu
