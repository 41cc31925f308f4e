#pragma once

#include <cstdint>

#include "engine/math/elementary.h"
#include "engine/math/host_device.h"
#include "engine/math/pointwise.h"

namespace rematch::math {

// Recurrent cells, unit by unit, for every backend: one source, so the same bits. Gates are in
// PyTorch's order: reset, update and new of a GRU; input, forget, cell and output of an LSTM.

enum class Cell : std::uint8_t { gru, lstm };

/// Operands of a recurrent layer: x[batch, steps, width], and states of `features` units.
struct RecurrentShape {
  Cell cell = Cell::gru;
  std::int64_t batch = 1;
  std::int64_t steps = 1;
  std::int64_t width = 1;
  std::int64_t features = 1;

  REMATCH_HD constexpr std::int64_t gates() const { return cell == Cell::gru ? 3 : 4; }
  /// Rows of the weights.
  REMATCH_HD constexpr std::int64_t rows() const { return gates() * features; }
  /// Numbers of a step that serve the backward: the activated gates, and of a GRU what its hidden
  /// state adds to the new gate. In the backward, the gradients of what they are made of.
  REMATCH_HD constexpr std::int64_t kept() const { return 4 * features; }
  /// Where among them gate g has the gradient of its hidden part. A GRU's new gate sees the hidden
  /// part through the reset gate, so it has one more.
  REMATCH_HD constexpr std::int64_t hidden_part(std::int64_t g) const {
    return cell == Cell::gru && g == 2 ? 3 * features : g * features;
  }
  /// The start of the sum over a step's gates, from the step's carry.
  template <typename T>
  REMATCH_HD constexpr T start(T carry) const {
    return cell == Cell::gru ? carry : T(0);
  }
};

/// Null: there is none.
template <typename T>
struct RecurrentWeights {
  const T* input = nullptr;
  const T* hidden = nullptr;
  const T* input_bias = nullptr;
  const T* hidden_bias = nullptr;
};

/// Results that a forward leaves to its backward: kept() numbers a step, and an LSTM's cells.
template <typename T>
struct RecurrentState {
  T* gates = nullptr;
  T* cells = nullptr;
};

/// Where gradients go; null: nowhere.
template <typename T>
struct RecurrentGradients {
  T* x = nullptr;
  T* input = nullptr;
  T* hidden = nullptr;
  T* input_bias = nullptr;
  T* hidden_bias = nullptr;
};

namespace detail {

/// The next state of a unit of a GRU whose state was h. `gates`, `apart` from each other, are the
/// input's parts and become what is kept; `hidden` are the hidden state's parts.
template <typename T>
REMATCH_HD inline T gru_unit(T* gates, std::int64_t apart, const T* hidden, T h) {
  const T r = sigmoid(gates[0] + hidden[0]);
  const T z = sigmoid(gates[apart] + hidden[1]);
  const T n = tanh(gates[2 * apart] + r * hidden[2]);
  gates[0] = r;
  gates[apart] = z;
  gates[2 * apart] = n;
  gates[3 * apart] = hidden[2];
  return n + z * (h - n);
}

/// The same for an LSTM, whose cell was c before and is `next` afterwards.
template <typename T>
REMATCH_HD inline T lstm_unit(T* gates, std::int64_t apart, const T* hidden, T c, T& next) {
  const T i = sigmoid(gates[0] + hidden[0]);
  const T f = sigmoid(gates[apart] + hidden[1]);
  const T g = tanh(gates[2 * apart] + hidden[2]);
  const T o = sigmoid(gates[3 * apart] + hidden[3]);
  gates[0] = i;
  gates[apart] = f;
  gates[2 * apart] = g;
  gates[3 * apart] = o;
  next = f * c + i * g;
  return o * tanh(next);
}

/// The gradients of what a unit's gates are made of, from the gradient gh of its next state.
/// Returns that of h, as far as it does not pass through a gate.
template <typename T>
REMATCH_HD inline T gru_unit_gradient(T gh, T h, const T* gates, std::int64_t apart, T* gradients) {
  const T r = gates[0];
  const T z = gates[apart];
  const T n = gates[2 * apart];
  const T gn = tanh_gradient(gh * (T(1) - z), n);
  gradients[0] = sigmoid_gradient(gn * gates[3 * apart], r);
  gradients[apart] = sigmoid_gradient(gh * (h - n), z);
  gradients[2 * apart] = gn;
  gradients[3 * apart] = gn * r;
  return gh * z;
}

/// The same for an LSTM. gc is what the steps after it add to the gradient of its cell, which was c
/// before; returns the gradient of c.
template <typename T>
REMATCH_HD inline T lstm_unit_gradient(T gh, T gc, T c, T next, const T* gates, std::int64_t apart,
                                       T* gradients) {
  const T i = gates[0];
  const T f = gates[apart];
  const T g = gates[2 * apart];
  const T o = gates[3 * apart];
  const T top = tanh(next);
  const T gnext = gc + tanh_gradient(gh * o, top);
  gradients[0] = sigmoid_gradient(gnext * g, i);
  gradients[apart] = sigmoid_gradient(gnext * c, f);
  gradients[2 * apart] = tanh_gradient(gnext * i, g);
  gradients[3 * apart] = sigmoid_gradient(gh * top, o);
  return gnext * f;
}

}  // namespace detail

/// Unit j at step t of sample b: turns the input's parts of its gates, in state.gates, into what is
/// kept, and makes its state in y. `hidden` are the parts of y's step before.
template <typename T>
REMATCH_HD inline void recurrent_unit(const RecurrentShape& s, std::int64_t b, std::int64_t t,
                                      std::int64_t j, const T* hidden,
                                      const RecurrentState<T>& state, T* y) {
  const std::int64_t row = b * s.steps + t;
  const std::int64_t at = row * s.features + j;
  T* const gates = state.gates + row * s.kept() + j;
  if (s.cell == Cell::gru) {
    const T h = t > 0 ? y[at - s.features] : T(0);
    y[at] = detail::gru_unit(gates, s.features, hidden, h);
  } else {
    const T c = t > 0 ? state.cells[at - s.features] : T(0);
    y[at] = detail::lstm_unit(gates, s.features, hidden, c, state.cells[at]);
  }
}

/// The same in the backward: `sum` is what the gates of the step after it add to the gradient of
/// its state, and `carry` what passes by them, to the state of a GRU or to the cell of an LSTM.
/// Writes kept() gradients from `gradients` on, and the carry for the step before.
template <typename T>
REMATCH_HD inline void recurrent_unit_gradient(const RecurrentShape& s, std::int64_t b,
                                               std::int64_t t, std::int64_t j, const T* gy,
                                               const T* y, const RecurrentState<T>& state, T sum,
                                               T& carry, T* gradients) {
  const std::int64_t row = b * s.steps + t;
  const std::int64_t at = row * s.features + j;
  const T* const gates = state.gates + row * s.kept() + j;
  const T gh = gy[at] + sum;
  if (s.cell == Cell::gru) {
    const T h = t > 0 ? y[at - s.features] : T(0);
    carry = detail::gru_unit_gradient(gh, h, gates, s.features, gradients + j);
  } else {
    const T c = t > 0 ? state.cells[at - s.features] : T(0);
    carry =
        detail::lstm_unit_gradient(gh, carry, c, state.cells[at], gates, s.features, gradients + j);
  }
}

}  // namespace rematch::math
