#pragma once

#include <cstdint>

#include "engine/math/attention.h"
#include "engine/random/generator.h"

namespace rematch::cpu {

// Scaled dot-product attention, y = dropout(softmax(q k^T / sqrt(size))) v for each head. Products
// are fma chains over ascending features, keys, or heads and queries; sums of rows are LaneSums.

/// Dropout of probabilities: element i of the scores takes word offset + i, as dropout_forward()
/// does. p = 0: none.
struct AttentionDropout {
  double p = 0;
  Generator generator;
};

/// What one forward leaves to its backward. Either all probabilities, before dropout, and its mask
/// if there is one; or, where `logs` is given, the log-sum-exp of each row of scores, from which
/// the backward computes the probabilities again, and draws the mask again.
template <typename T>
struct AttentionState {
  T* probabilities = nullptr;
  std::uint8_t* mask = nullptr;
  T* logs = nullptr;
};

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
