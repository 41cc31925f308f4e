#pragma once

#include <cstdint>

#include "engine/math/attention.h"

namespace rematch::cpu {

// Scaled dot-product attention, y = dropout(softmax(q k^T / sqrt(size))) v for each head. Products
// are fma chains over ascending features, keys, or heads and queries; sums of rows are LaneSums.

using math::AttentionDropout;
using math::AttentionState;

template <typename T>
void attention_forward(const math::AttentionShape& s, const T* q, const T* memory,
                       const AttentionDropout& dropout, const AttentionState<T>& state, T* y);

/// Gradients of q and memory; either may be null. `y` is what the forward made, and read only where
/// the state holds log-sum-exps: the sum of gradient * probability over a row is then that of
/// gy * y over the features.
template <typename T>
void attention_backward(const math::AttentionShape& s, const T* gy, const T* q, const T* memory,
                        const T* y, const AttentionDropout& dropout, const AttentionState<T>& state,
                        T* gq, T* gmemory);

}  // namespace rematch::cpu
