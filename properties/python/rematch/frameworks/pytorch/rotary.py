"""Rotary positions as the reference computes them.

Scripts show this source, so it uses nothing but PyTorch.
"""

import torch


def rotary(x, features, heads):
    """Turns the first features, those of so many heads, by their row's position."""
    size = features // heads
    position = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
    pair = torch.arange(size // 2, dtype=torch.float64, device=x.device)
    radians = position[:, None, None] * 10000.0 ** (-2 * pair / size)
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = radians.cos().to(dtype), radians.sin().to(dtype)
    first, second = x[..., :features].unflatten(-1, (heads, size)).chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    return torch.cat((turned, x[..., features:]), -1)
