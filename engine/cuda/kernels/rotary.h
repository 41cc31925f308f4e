#pragma once

#include "engine/math/rotary.h"

namespace rematch::cuda {

/// engine/cpu/rotary.h on the device, with the CPU's bits: pointers are the device's, and the one
/// launch goes to stream().
template <typename T>
void rotary(const math::RotaryShape& s, double direction, const T* x, T* y);

}  // namespace rematch::cuda
