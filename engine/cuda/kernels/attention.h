#pragma once

#include <cstdint>

#include "engine/math/attention.h"

namespace rematch::cuda {

// engine/cpu/attention.h on the device: pointers are the device's, work goes to stream(). Formulas
// and the order of sums are the CPU's, so all results have its bits (NaN payloads apart). What the
// backward computes again, and gradients of probabilities, lie in the thread's workspace. Not
// cuDNN's: the support matrix of its attention (docs.nvidia.com, "Attention", for 9.18) has no
// deterministic plan for these types, as it has none at all: it takes float16, bfloat16 and float8.

using math::AttentionDropout;
using math::AttentionState;

template <typename T>
void attention_forward(const math::AttentionShape& s, const T* q, const T* memory,
                       const AttentionDropout& dropout, const AttentionState<T>& state, T* y);

template <typename T>
void attention_backward(const math::AttentionShape& s, const T* gy, const T* q, const T* memory,
                        const T* y, const AttentionDropout& dropout, const AttentionState<T>& state,
                        T* gq, T* gmemory);

}  // namespace rematch::cuda
