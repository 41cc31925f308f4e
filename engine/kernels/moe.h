#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"
#include "engine/math/moe.h"

namespace rematch {

// On the device moe_forward is two launches, moe_backward at most four, with gradients of logits in
// the thread's workspace and each sum over rows in one thread, which looks at all of them: for
// layers of few rows. count_rows_of_experts is one launch, of a thread for each expert.

/// y[rows, features]: for each row, the outputs of the chosen experts, each times its probability,
/// from the likeliest on. `probabilities` [rows, experts] holds noise that is added to the logits
/// `jitter` times (not read for a jitter of 0), and is overwritten; chosen[rows, top] and
/// outputs[rows, top, features] are for the backward.
REMATCH_DECLARE(void moe_forward(const math::MoeShape& s, const T* x, const T* router,
                                 const T* experts, T jitter, T* probabilities, std::int32_t* chosen,
                                 T* outputs, T* y));

/// Gradients that are null are not wanted; `x` may be null unless gradients of parameters are,
/// `router` and `experts` may be unless that of x is.
REMATCH_DECLARE(void moe_backward(const math::MoeShape& s, const T* gy, const T* x, const T* router,
                                  const T* experts, const T* probabilities,
                                  const std::int32_t* chosen, const T* outputs, T* gx, T* grouter,
                                  T* gexperts));

/// Adds to load[experts] how many rows each expert was given; chosen[n] names them.
REMATCH_DECLARE(void count_rows_of_experts(std::int64_t n, std::int64_t experts,
                                           const std::int32_t* chosen, T* load));

#define REMATCH_MOE_KERNELS(K) \
  K(moe_forward);              \
  K(moe_backward);             \
  K(count_rows_of_experts)

}  // namespace rematch
