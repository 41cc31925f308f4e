#include "engine/kernels/recurrent.h"

#include "engine/cuda/kernels/product.h"
#include "engine/cuda/runtime/launch.h"

namespace rematch::cuda {

namespace {

using math::RecurrentGradients;
using math::RecurrentShape;
using math::RecurrentState;
using math::RecurrentWeights;

/// The input's parts of all gates, a thread each.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    input_kernel(RecurrentShape s, const T* x, const T* weight, const T* bias, T* gates) {
  const std::int64_t n = s.batch * s.steps * s.rows();
  for (std::int64_t e = global_thread(); e < n; e += global_threads()) {
    const std::int64_t row = math::quotient(e, s.rows());
    const std::int64_t k = e - row * s.rows();
    T sum = bias != nullptr ? bias[k] : T(0);
    for (std::int64_t c = 0; c < s.width; ++c) {
      sum = std::fma(weight[k * s.width + c], x[row * s.width + c], sum);
    }
    gates[row * s.kept() + k] = sum;
  }
}

/// Step t, a thread a unit.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    step_kernel(RecurrentShape s, std::int64_t t, const T* weight, const T* bias,
                RecurrentState<T> state, T* y) {
  const std::int64_t n = s.batch * s.features;
  for (std::int64_t e = global_thread(); e < n; e += global_threads()) {
    const std::int64_t b = math::quotient(e, s.features);
    const std::int64_t j = e - b * s.features;
    const T* before = y + (b * s.steps + t - 1) * s.features;
    T hidden[4] = {};
    for (std::int64_t g = 0; g < s.gates(); ++g) {
      const std::int64_t k = g * s.features + j;
      hidden[g] = bias != nullptr ? bias[k] : T(0);
      for (std::int64_t c = 0; t > 0 && c < s.features; ++c) {
        hidden[g] = std::fma(weight[k * s.features + c], before[c], hidden[g]);
      }
    }
    math::recurrent_unit(s, b, t, j, hidden, state, y);
  }
}

/// Step t of the backward, a thread a unit. `gates` are gradients.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    step_gradient_kernel(RecurrentShape s, std::int64_t t, const T* gy, const T* weight, const T* y,
                         RecurrentState<T> state, T* carries, T* gates) {
  const std::int64_t n = s.batch * s.features;
  for (std::int64_t e = global_thread(); e < n; e += global_threads()) {
    const std::int64_t b = math::quotient(e, s.features);
    const std::int64_t j = e - b * s.features;
    T* const step = gates + (b * s.steps + t) * s.kept();
    const bool last = t + 1 == s.steps;
    T carry = last ? T(0) : carries[e];
    T sum = s.start(carry);
    for (std::int64_t g = 0; !last && g < s.gates(); ++g) {
      const T* const after = step + s.kept() + s.hidden_part(g);
      for (std::int64_t c = 0; c < s.features; ++c) {
        sum = std::fma(after[c], weight[(g * s.features + c) * s.features + j], sum);
      }
    }
    math::recurrent_unit_gradient(s, b, t, j, gy, y, state, sum, carry, step);
    carries[e] = carry;
  }
}

/// A thread an element of the hidden weight's gradient: the sum over the states before steps.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    hidden_weight_kernel(RecurrentShape s, const T* gates, const T* y, T* out) {
  const std::int64_t n = s.rows() * s.features;
  for (std::int64_t e = global_thread(); e < n; e += global_threads()) {
    const std::int64_t k = math::quotient(e, s.features);
    const std::int64_t c = e - k * s.features;
    const std::int64_t g = math::quotient(k, s.features);
    const std::int64_t at = s.hidden_part(g) + k - g * s.features;
    T sum = 0;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t row = b * s.steps + 1; row < (b + 1) * s.steps; ++row) {
        sum = std::fma(gates[row * s.kept() + at], y[(row - 1) * s.features + c], sum);
      }
    }
    out[e] = sum;
  }
}

/// A thread an element of both biases' gradients; either may be null.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    bias_kernel(RecurrentShape s, const T* gates, T* input, T* hidden) {
  for (std::int64_t k = global_thread(); k < s.rows(); k += global_threads()) {
    const std::int64_t g = math::quotient(k, s.features);
    const std::int64_t at = s.hidden_part(g) + k - g * s.features;
    T of_input = 0;
    T of_hidden = 0;
    for (std::int64_t row = 0; row < s.batch * s.steps; ++row) {
      of_input += gates[row * s.kept() + k];
      of_hidden += gates[row * s.kept() + at];
    }
    if (input != nullptr) input[k] = of_input;
    if (hidden != nullptr) hidden[k] = of_hidden;
  }
}

}  // namespace

template <typename T>
void recurrent_forward(const RecurrentShape& s, const T* x, const RecurrentWeights<T>& w,
                       const RecurrentState<T>& state, T* y) {
  input_kernel<<<grid_for(s.batch * s.steps * s.rows()), kThreads, 0, stream()>>>(
      s, x, w.input, w.input_bias, state.gates);
  check_launch("recurrent_input");
  for (std::int64_t t = 0; t < s.steps; ++t) {
    step_kernel<<<grid_for(s.batch * s.features), kThreads, 0, stream()>>>(s, t, w.hidden,
                                                                           w.hidden_bias, state, y);
    check_launch("recurrent_step");
  }
}

template <typename T>
void recurrent_backward(const RecurrentShape& s, const T* gy, const T* x,
                        const RecurrentWeights<T>& w, const T* y, const RecurrentState<T>& state,
                        const RecurrentGradients<T>& to) {
  const std::int64_t rows = s.batch * s.steps;
  const auto room = static_cast<std::size_t>(rows * s.kept() + s.batch * s.features);
  T* const gates = static_cast<T*>(workspace(room * sizeof(T)));
  T* const carries = gates + rows * s.kept();
  for (std::int64_t t = s.steps - 1; t >= 0; --t) {
    step_gradient_kernel<<<grid_for(s.batch * s.features), kThreads, 0, stream()>>>(
        s, t, gy, w.hidden, y, state, carries, gates);
    check_launch("recurrent_step_gradient");
  }
  if (to.x != nullptr) {
    product<T>(rows, s.width, s.rows(), {gates, s.kept(), 1}, {w.input, s.width, 1}, nullptr, to.x);
  }
  if (to.input != nullptr) {
    product<T>(s.rows(), s.width, rows, {gates, 1, s.kept()}, {x, s.width, 1}, nullptr, to.input);
  }
  if (to.hidden != nullptr) {
    hidden_weight_kernel<<<grid_for(s.rows() * s.features), kThreads, 0, stream()>>>(s, gates, y,
                                                                                     to.hidden);
    check_launch("recurrent_hidden_weight");
  }
  if (to.input_bias != nullptr || to.hidden_bias != nullptr) {
    bias_kernel<<<grid_for(s.rows()), kThreads, 0, stream()>>>(s, gates, to.input_bias,
                                                               to.hidden_bias);
    check_launch("recurrent_bias");
  }
}

REMATCH_RECURRENT_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
