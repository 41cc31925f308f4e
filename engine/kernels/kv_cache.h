#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

/// out[outer, inner_a + inner_b] = a[inner_a], the same each time, beside b[outer, inner_b].
/// One launch on the device.
REMATCH_DECLARE(void prepend(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b,
                             const T* a, const T* b, T* out));

#define REMATCH_KV_CACHE_KERNELS(K) K(prepend)

}  // namespace rematch
