"""What PyTorch's documentation promises of torch.utils.checkpoint beside equal numbers: what is
refused and how, what errors say, what is warned of, what options and helpers do, and that settings
are left as they were found.

A promise is a small function that tries one of them, with its sentence as docstring. A checkpointed
run keeps up to one, which the seed of its case chooses, so that a finding is found again when it is
replayed and shrunk.
"""

from __future__ import annotations

from rematch.frameworks.pytorch.contract import (
    calls,
    errors,
    graphs,
    hooks,
    policies,
    refusals,
    scopes,
)
from rematch.frameworks.pytorch.contract.promise import Promise, broken

PROMISES: list[Promise] = [
    promise
    for module in (calls, refusals, errors, graphs, hooks, policies, scopes)
    for promise in module.promises
]


def promise_of(seed: int, often: bool = True) -> Promise | None:
    """The promise that goes with the case of that seed, if any does: with two of five cases, or
    with one of ten. With more a hunt would be slower by more than a twentieth."""
    at = ((seed + 1) * 0x9E3779B97F4A7C15 >> 32) % (len(PROMISES) * (5 if often else 20) // 2)
    return PROMISES[at] if at < len(PROMISES) else None


__all__ = ["PROMISES", "broken", "promise_of"]
