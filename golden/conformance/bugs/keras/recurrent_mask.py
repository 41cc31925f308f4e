"""keras.remat() of a recurrent layer with dropout on PyTorch trains with one mask for ever.

A recurrent layer keeps its dropout mask until its call ends, and drops it then. PyTorch ends a recomputation early, by an
exception, so the mask that the recomputation drew stays in the layer, and all further forwards take it. LSTM, GRU and
SimpleRNN alike.

severity: silent, one mask for all steps
versions: keras 3.15, torch 2.15.0
promise: none about dropout; without keras.remat() each step draws a mask
cause: keras/src/layers/rnn/rnn.py, RNN.call: resets the mask behind the loop, which early stop leaves by an exception
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch

layer = keras.layers.LSTM(4, dropout=0.5)
x = torch.ones(1, 3, 64, requires_grad=True)


def mask(call):
    """Elements of the input that one training step keeps: the others have no gradient."""
    (gradient,) = torch.autograd.grad(call(x).sum(), x)
    return (gradient[0, 0] != 0).tolist()


def forward(x):
    return layer(x, training=True)


for name, call in (("control: plain", forward), ("remat", keras.remat(forward))):
    masks = [mask(call) for _ in range(5)]
    different = len({tuple(m) for m in masks[1:]})
    print(f"{name}: {'right' if different == 4 else 'WRONG'}: {different} masks in 4 steps")
sys.exit(different != 4)
