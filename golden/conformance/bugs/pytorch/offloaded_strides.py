"""save_on_cpu(pin_memory=True) loses strides, and a non-reentrant checkpoint within it gives wrong gradients.

checkpoint() keeps the inputs of a region by the hooks that surround it, and these hooks give a slice back contiguous.
nn.Linear then saves its tensors in another order. Where all of them have one shape, as here, checkpoint() takes one for the
other; elsewhere it raises a CheckpointError. transformers enters that context by
activation_checkpointing_enable(offload=True).

severity: silent, wrong gradients
promise: none about strides; with pin_memory=False they are kept
cause: torch/autograd/graph.py, save_on_cpu.pack_to_cpu: torch.empty(tensor.size()) has other strides than the tensor
thread: near https://github.com/pytorch/pytorch/pull/186396
"""

import sys

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
x = torch.randn(2, 5, 8, requires_grad=True)


def gradient(rows, pins, is_checkpointed):
    with save_on_cpu(pin_memory=pins):
        y = checkpoint(layer, x[:, :rows], use_reentrant=False) if is_checkpointed else layer(x[:, :rows])
    return torch.autograd.grad(y.square().sum(), x)[0].flatten()[:2]


def is_wrong(name, rows=4, pins=True):
    expected, got = gradient(rows, pins, False), gradient(rows, pins, True)
    wrong = not torch.allclose(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got.tolist()}, expected {expected.tolist()}")
    return wrong


is_wrong("control: all rows, which are contiguous", rows=5)
is_wrong("control: pin_memory=False", pins=False)
sys.exit(is_wrong("a slice, pin_memory=True"))
