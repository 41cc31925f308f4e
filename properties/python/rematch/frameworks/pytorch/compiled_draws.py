"""Promises of compiled functions that draw their own random numbers, so that no eager run has their masks.

Without bias, linear layers, relu and dropout make a function f that is homogeneous: while its masks stay as they are,
f(tx) = t f(x). By Euler's theorem the gradient g of its sum satisfies <g, x> = sum f(x), if the backward has the masks
of the forward.
"""

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from rematch.subjects.promises import promises_in


def masks_agree(run):
    """Whether forward and backward of the compiled function have the same masks."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 512, dtype=torch.float64).reshape(64, 8).requires_grad_()
    y = torch.compile(run, fullgraph=True)(x)
    y.sum().backward()
    terms = x.grad * x
    # Both sums and all products in them take fewer than 4,096 roundings, each by 2 ** -53.
    bound = 2**-41 * (y.abs().sum() + terms.abs().sum())
    return [True], [bool((y.sum() - terms.sum()).abs() <= bound)]


def mixed(x):
    weight = torch.linspace(-1, 1, 64, dtype=torch.float64).reshape(8, 8)
    return F.dropout(torch.relu(F.dropout(x, 0.25) @ weight), 0.5)


def masks_of_a_segment(checkpoint):
    """A compiled segment has the masks of its forward in its backward."""
    return masks_agree(checkpoint(mixed))


def masks_beside_a_segment(checkpoint):
    """What draws before and behind a compiled segment has the masks of its forward, too."""
    segment = checkpoint(mixed)
    return masks_agree(lambda x: mixed(segment(mixed(x))))


def masks_of_two_segments(checkpoint):
    """Two compiled segments have the masks of their forwards in their backwards."""
    first, second = checkpoint(mixed), checkpoint(lambda x: mixed(x) + F.dropout(x))
    return masks_agree(lambda x: second(first(x)))


def masks_of_nested_segments(checkpoint):
    """Nested compiled segments have the masks of their forwards in their backwards."""
    inner = checkpoint(mixed)
    return masks_agree(checkpoint(lambda x: F.dropout(inner(x)) + mixed(x)))


def masks_under_a_policy(checkpoint):
    """A compiled segment that keeps its products has the masks of its forward in its backward."""
    keeps = lambda: create_selective_checkpoint_contexts([torch.ops.aten.mm.default])  # noqa: E731
    return masks_agree(checkpoint(mixed, context_fn=keeps))


def masks_of_reentrant_segments(checkpoint):
    """A compiled segment with use_reentrant=True has the masks of its forward in its backward."""
    return masks_agree(checkpoint(mixed, use_reentrant=True))


PROMISES = promises_in(globals())
