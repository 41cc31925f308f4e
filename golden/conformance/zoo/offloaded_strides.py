"""PyTorch: checkpoint() within save_on_cpu(pin_memory=True) gives wrong gradients, without an error.

checkpoint() keeps the inputs of a region by the hooks that surround it, and these hooks give a slice back contiguous.
nn.Linear saves its tensors in another order then. Where all of them have one shape, as here, checkpoint() takes one for
the other; elsewhere it raises a CheckpointError. Prints "wrong" for PyTorch 2.15.0, and "right" for x[:, :5].

transformers enters that context by activation_checkpointing_enable(offload=True).
"""

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
x = torch.randn(2, 5, 8, requires_grad=True)


def gradient(checkpointed):
    with save_on_cpu(pin_memory=True):
        rows = x[:, :4]
        y = checkpoint(layer, rows, use_reentrant=False) if checkpointed else layer(rows)
        loss = y.square().sum()
    return torch.autograd.grad(loss, x)[0]


plain, again = gradient(False), gradient(True)
off = (plain - again).abs().max()
print("right" if torch.allclose(plain, again) else f"wrong by {off:.2f}, the largest element is {plain.abs().max():.2f}")
