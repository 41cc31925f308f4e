#pragma once

#include "engine/kernels/declare.h"
#include "engine/math/recurrent.h"

namespace rematch {

// A layer of GRU or LSTM cells whose first state is zero: y[batch, steps, features] are the states.
// Products are fma chains over ascending features of the input or of the state, which begin with
// the bias; in the backward over ascending rows of the weights, and over ascending samples and
// steps. Gradients of biases are sums in that order.
// On the device every step is a launch, and gradients of the gates lie in the thread's workspace.

REMATCH_DECLARE(void recurrent_forward(const math::RecurrentShape& s, const T* x,
                                       const math::RecurrentWeights<T>& weights,
                                       const math::RecurrentState<T>& state, T* y));

/// `x` is read for the gradient of the input's weight alone, and the input's weight for that of x.
REMATCH_DECLARE(void recurrent_backward(const math::RecurrentShape& s, const T* gy, const T* x,
                                        const math::RecurrentWeights<T>& weights, const T* y,
                                        const math::RecurrentState<T>& state,
                                        const math::RecurrentGradients<T>& gradients));

#define REMATCH_RECURRENT_KERNELS(K) \
  K(recurrent_forward);              \
  K(recurrent_backward)

}  // namespace rematch
