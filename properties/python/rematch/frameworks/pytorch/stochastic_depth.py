"""A residual branch that samples skip at random, computed of the samples that take it.

Scripts show this source, so it uses nothing but PyTorch.
"""

import torch
import torch.nn.functional as F


def stochastic_depth(x, weight, p=0.5, training=True):
    """x and what its branch makes of it. In training, samples skip the branch with probability p:
    those that take it are gathered, and its results, scaled, are added to their rows."""
    if not training or p == 0:
        return x + F.linear(x, weight)
    kept = torch.where(torch.rand(len(x), device=x.device) >= p)[0]
    branch = F.linear(x[kept], weight) / (1 - p)
    return x.index_add(0, kept, branch.to(x.dtype))
