#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

/// out[outer, inner_a + inner_b] = a[outer, inner_a] beside b[outer, inner_b].
REMATCH_DECLARE(void concat2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b,
                             const T* a, const T* b, T* out));

/// The inverse: a = the first inner_a columns of x, b = the rest. Either output may be null.
REMATCH_DECLARE(void split2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b,
                            const T* x, T* a, T* b));

#define REMATCH_CONCAT_KERNELS(K) \
  K(concat2);                     \
  K(split2)

}  // namespace rematch
