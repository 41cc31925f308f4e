#pragma once

#include "engine/math/recurrent.h"

namespace rematch::cuda {

// engine/cpu/recurrent.h on the device: pointers are the device's, work goes to stream(). Formulas
// and the order of sums are the CPU's, so all results have its bits (NaN payloads apart). Every
// step is a launch. Gradients of the gates lie in the thread's workspace.

template <typename T>
void recurrent_forward(const math::RecurrentShape& s, const T* x,
                       const math::RecurrentWeights<T>& weights,
                       const math::RecurrentState<T>& state, T* y);

template <typename T>
void recurrent_backward(const math::RecurrentShape& s, const T* gy, const T* x,
                        const math::RecurrentWeights<T>& weights, const T* y,
                        const math::RecurrentState<T>& state,
                        const math::RecurrentGradients<T>& gradients);

}  // namespace rematch::cuda
