"""Delayed scaling as the reference computes it.

Scripts show this source, so it uses nothing but PyTorch.
"""

import torch


def delayed_scaling(x, scale, training=True):
    """Divides x by the scale that forwards before this one left, which is of one element, and
    moves it halfway to the largest magnitude in x."""
    y = x / scale.clone()
    if training:
        with torch.no_grad():
            scale.copy_((scale + x.abs().max()) / 2)
    return y
