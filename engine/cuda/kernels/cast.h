#pragma once

#include <cstdint>

#include "engine/math/bfloat16.h"

namespace rematch::cuda {

// engine/cpu/cast.h on the device, with its contracts: pointers are the device's, work goes to
// stream(), and every result has the CPU's bits.

void upcast(std::int64_t n, const math::BFloat16* x, float* out);

void downcast(std::int64_t n, const float* x, math::BFloat16* out);

}  // namespace rematch::cuda
