#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"
#include "engine/math/attention.h"
#include "engine/random/generator.h"

namespace rematch {

/// Dropout of probabilities: element i of the scores takes word offset + i, as dropout_forward()
/// does. p = 0: none.
struct AttentionDropout {
  double p = 0;
  Generator generator;
};

// Scaled dot-product attention, y = dropout(softmax(q k^T / sqrt(size))) v for each head. Products
// are fma chains over ascending features, keys, or heads and queries; sums of rows are LaneSums.
// Both run over the keys of AttentionShape::keys_of() and the queries from first_query_of() on: NaN
// elsewhere leaves no trace.
//
// On the device the backward keeps what it computes again, and gradients of probabilities, in the
// thread's workspace. cuDNN's attention is not used: its support matrix (docs.nvidia.com,
// "Attention", for 9.18) has no deterministic plan for these types; it takes float16, bfloat16 and
// float8.

REMATCH_DECLARE(void attention_forward(const math::AttentionShape& s, const T* q, const T* memory,
                                       const AttentionDropout& dropout,
                                       const math::AttentionState<T>& state, T* y));

/// Gradients of q and memory; either may be null. `y` is what the forward made, and read only where
/// the state holds log-sum-exps: the sum of gradient * probability over a row is then that of
/// gy * y over the features.
REMATCH_DECLARE(void attention_backward(const math::AttentionShape& s, const T* gy, const T* q,
                                        const T* memory, const T* y,
                                        const AttentionDropout& dropout,
                                        const math::AttentionState<T>& state, T* gq, T* gmemory));

#define REMATCH_ATTENTION_KERNELS(K) \
  K(attention_forward);              \
  K(attention_backward)

}  // namespace rematch
