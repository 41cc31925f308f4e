#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"
#include "engine/math/bfloat16.h"

namespace rematch {

/// out = x, exactly.
REMATCH_DECLARE_PLAIN(void upcast(std::int64_t n, const math::BFloat16* x, float* out));

/// out = x, rounded (engine/math/bfloat16.h).
REMATCH_DECLARE_PLAIN(void downcast(std::int64_t n, const float* x, math::BFloat16* out));

}  // namespace rematch
