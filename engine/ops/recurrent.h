#pragma once

#include "engine/tensor/tensor.h"

namespace rematch {

/// Parameters of a recurrent layer with g gates of h units, on an input of width w.
struct RecurrentParameters {
  Tensor input;   ///< [g * h, w]
  Tensor hidden;  ///< [g * h, h]
  /// [g * h], both or neither.
  Tensor input_bias = {};
  Tensor hidden_bias = {};
};

/// The states [batch, steps, h] of a layer of cells over x[batch, steps, w], from a state of zeros,
/// as of torch.nn.GRU and torch.nn.LSTM with batch_first. The gates' order is reset, update, new,
/// and input, forget, cell, output. Saves x if a parameter requires grad, the input's weight if x
/// does, the hidden state's weight, the states, four numbers for each of them, and an LSTM's cells.
Tensor gru(const Tensor& x, const RecurrentParameters& parameters);
Tensor lstm(const Tensor& x, const RecurrentParameters& parameters);

}  // namespace rematch
