"""autocast: gradients of a weight that is used several times are added up in bfloat16, not in float32.

The uses share one cast, whose gradient is a sum in bfloat16. This is the plain run's error; a reentrant checkpoint casts for
itself, so that its gradient is the better one, and the two differ.

severity: silent, gradients off by rounding
promise: "ops run in an op-specific dtype chosen by autocast to improve performance while maintaining accuracy" (docstring
    of torch.autocast)
cause: aten/src/ATen/autocast_mode.cpp, cached_cast: one cast for all uses
"""

import sys

import torch
from torch.utils.checkpoint import checkpoint

USES = 16
weight = torch.ones(1, 1, requires_grad=True)
rows = [torch.tensor([[1 + i / 128]]) for i in range(USES)]
expected = sum(row.item() for row in rows)


def is_wrong(name, run, caches=True):
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=caches):
        loss = sum(run(torch.nn.functional.linear, row, weight).float() for row in rows)
    weight.grad = None
    loss.sum().backward()
    got = weight.grad.item()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


def reentrant(function, row, weight):
    return checkpoint(function, row, weight, use_reentrant=True)


is_wrong("control: cache_enabled=False", lambda f, row, w: f(row, w), caches=False)
is_wrong("control: a reentrant checkpoint around each use", reentrant)
sys.exit(is_wrong("16 uses", lambda f, row, w: f(row, w)))
