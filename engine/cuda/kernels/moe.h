#pragma once

#include <cstdint>

#include "engine/math/moe.h"

namespace rematch::cuda {

// engine/cpu/moe.h on the device: pointers are the device's, work goes to stream(), and every
// result has the CPU's bits (NaN payloads apart).

/// Two launches.
template <typename T>
void moe_forward(const math::MoeShape& s, const T* x, const T* router, const T* experts, T jitter,
                 T* probabilities, std::int32_t* chosen, T* outputs, T* y);

/// At most four launches. Gradients of logits lie in the thread's workspace. A sum over rows is one
/// thread's, which looks at all of them: for layers of few rows.
template <typename T>
void moe_backward(const math::MoeShape& s, const T* gy, const T* x, const T* router,
                  const T* experts, const T* probabilities, const std::int32_t* chosen,
                  const T* outputs, T* gx, T* grouter, T* gexperts);

/// One launch, of a thread for each expert.
template <typename T>
void count_rows_of_experts(std::int64_t n, std::int64_t experts, const std::int32_t* chosen,
                           T* load);

}  // namespace rematch::cuda
