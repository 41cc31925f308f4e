"""A linear layer under spectral normalisation as the reference computes it.

Scripts show this source, so it uses nothing but PyTorch.
"""

import torch
import torch.nn.functional as F


def spectral_norm(x, u, v, weight, bias=None, training=True):
    """F.linear() with the weight divided by u^T weight v, which estimates its largest singular
    value. Training takes a step of the power iteration first, from the u that forwards before this
    one left, as nn.utils.spectral_norm does."""
    if training:
        with torch.no_grad():
            v.copy_(F.normalize((weight * u[:, None]).sum(0), dim=0, eps=1e-12))
            u.copy_(F.normalize((weight * v).sum(1), dim=0, eps=1e-12))
    # The next forward writes to both.
    left, right = u.clone(), v.clone()
    sigma = (left * (weight * right).sum(1)).sum()
    return F.linear(x, weight / sigma, bias)
