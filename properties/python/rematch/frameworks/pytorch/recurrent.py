"""Recurrent layers by PyTorch's functions behind nn.GRU and nn.LSTM.

Scripts show this source, so it uses nothing but PyTorch.
"""

import torch


def gru(x, weights, training=True):
    """The states [batch, steps, features] from zeros on; `weights` in the order of nn.GRU."""
    h = x.new_zeros(1, x.shape[0], weights[1].shape[1])
    return torch.gru(x, h, weights, len(weights) == 4, 1, 0.0, training, False, True)[0]


def lstm(x, weights, training=True):
    """The states [batch, steps, features] from zeros on; `weights` in the order of nn.LSTM."""
    h = x.new_zeros(1, x.shape[0], weights[1].shape[1])
    return torch.lstm(x, (h, h), weights, len(weights) == 4, 1, 0.0, training, False, True)[0]
