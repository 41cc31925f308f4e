#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// Outputs may be one of the inputs, but must not overlap them otherwise.

/// out = a + b. This, add_inplace and fill are there for bfloat16 as well.
REMATCH_DECLARE(void add(std::int64_t n, const T* a, const T* b, T* out));

/// y += x.
REMATCH_DECLARE(void add_inplace(std::int64_t n, const T* x, T* y));

/// out = a * s.
REMATCH_DECLARE(void scale(std::int64_t n, const T* a, T s, T* out));

/// x *= s.
REMATCH_DECLARE(void scale_inplace(std::int64_t n, T s, T* x));

/// out = value everywhere.
REMATCH_DECLARE(void fill(std::int64_t n, T value, T* out));

/// out = *value everywhere. On the device `value` is the device's.
REMATCH_DECLARE(void fill_from(std::int64_t n, const T* value, T* out));

/// *out = the sum of x in the order of LaneSum (engine/cpu/reduce.h): 16 lanes within blocks of
/// 1024, lanes added as a tree, block sums added in ascending order in double. On the device within
/// ((64 + 4) u_T + ceil(n / 1024) u_64) * sum |x| of the exact sum (engine/math/lane_order.h
/// derives it). One warp adds the blocks' sums, one in 1024 elements: the price of that order is
/// some microseconds a million elements.
REMATCH_DECLARE(void sum(std::int64_t n, const T* x, T* out));

#define REMATCH_ELEMENTWISE_KERNELS(K) \
  K(add);                              \
  K(add_inplace);                      \
  K(scale);                            \
  K(scale_inplace);                    \
  K(fill);                             \
  K(fill_from);                        \
  K(sum)
#define REMATCH_ELEMENTWISE_BFLOAT16_KERNELS(K) \
  K(add);                                       \
  K(add_inplace);                               \
  K(fill)

}  // namespace rematch
