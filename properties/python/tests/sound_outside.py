"""Sound modules that move what lies outside of them, or read what hangs on what they hold."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from sound import Inner, sound, takes
from torch import nn


@sound
class SeedsPyTorch(Inner):
    """PyTorch's generator is put back after a recomputation."""

    def forward(self, x):
        torch.manual_seed(5)
        return F.dropout(self.inner(x), 0.5)


@sound
class HooksAndCleansUp(Inner):
    """Early stop unwinds the finally block."""

    def forward(self, x):
        handle = self.inner.register_forward_hook(lambda module, taken, y: y + 1)
        try:
            return self.inner(x).sin()
        finally:
            handle.remove()


@sound
class CachesConstants(Inner):
    """The recomputation finds the cache filled, with what has no graph anyway."""

    def __init__(self) -> None:
        super().__init__()
        self.ramp = functools.lru_cache(lambda n: torch.linspace(0, 1, n))

    def forward(self, x):
        return (self.inner(x) * self.ramp(4)).tanh()


@sound
class ReadsTagOfWeight(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.inner.weight.scale = 2.0  # type: ignore[assignment]

    def forward(self, x):
        return (self.inner(x) * self.inner.weight.scale).tanh()


@sound
class FrozenInside(Inner):
    """Safe, but not with use_reentrant=True behind frozen weights, which fails no assertion."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        return self.inner(self.outer(x).tanh())


@sound
class TakesNestedRows(Inner):
    def forward(self, rows):
        return self.inner(rows).tanh()


takes("TakesNestedRows", torch.nested.nested_tensor([torch.ones(2, 4), torch.full((3, 4), 0.5)], layout=torch.jagged))
