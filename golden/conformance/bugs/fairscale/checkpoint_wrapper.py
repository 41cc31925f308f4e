"""fairscale: checkpoint_wrapper() recomputes without autocast on the CPU; nested wrappers stop statistics of BatchNorm.

The recomputation enters autocast only if it is on for CUDA, so the gradient belongs to another forward. Two wrappers patch a
BatchNorm, and the second saves the flag that the first has cleared: track_running_stats stays False.

severity: silent, wrong gradients and statistics
versions: fairscale 0.4.13, torch 2.15.0; no longer maintained
promise: none
cause: fairscale/nn/checkpoint/checkpoint_activations.py and checkpoint_utils.py
thread: near https://github.com/facebookresearch/fairscale/issues/1199
"""

import sys

import torch
from fairscale.nn import checkpoint_wrapper
from torch import nn


class Squared(nn.Linear):
    def forward(self, x):
        return super().forward(x).square()


def gradient(wrap):
    torch.manual_seed(0)
    layer = Squared(16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        y = wrap(layer)(torch.randn(4, 16, requires_grad=True))
    y.float().sum().backward()
    return layer.weight.grad


plain = gradient(lambda layer: layer)
print("control: twice without it:", "right" if torch.equal(plain, gradient(lambda layer: layer)) else "WRONG")
same = torch.equal(plain, gradient(checkpoint_wrapper))
print("gradient under autocast:", "right" if same else "WRONG")

norm = nn.BatchNorm1d(2)
wrapped = checkpoint_wrapper(nn.Sequential(checkpoint_wrapper(norm)))
for _ in range(2):
    wrapped(torch.randn(4, 2, requires_grad=True)).sum().backward()
print("statistics of BatchNorm in 2 steps:", "right" if norm.num_batches_tracked == 2 else "WRONG")
sys.exit(not same or int(norm.num_batches_tracked) != 2)
