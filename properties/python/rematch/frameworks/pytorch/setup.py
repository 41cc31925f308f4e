"""How a case is run on several ranks."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.case import Case
from rematch.protocol import Unsupported

MODES = {
    "ddp": ("default", "find_unused_parameters", "static_graph"),
    "fsdp2": ("checkpoint within", "checkpoint around"),
}


@dataclass(frozen=True)
class Setup:
    """How a case is run in parallel, which its seed decides."""

    kind: str
    ranks: int
    mode: str
    no_sync: bool
    """Gradients are reduced in the last microbatch of a step only."""
    buckets: bool
    """DDP puts several parameters into a bucket."""


def setup_of(kind: str, case: Case) -> Setup:
    """Raises Unsupported for a batch that cannot be shared."""
    rows, drawn = case.input[0], (case.seed + 1) * 0x9E3779B97F4A7C15 >> 20
    if rows < 2:
        raise Unsupported("a batch of one row: there is nothing to share")
    ranks = 4 if rows >= 4 and drawn % 2 else 2
    mode = MODES[kind][(drawn >> 1) % len(MODES[kind])]
    # Where in a bucket it lies decides in which order four gradients are added up.
    return Setup(kind, ranks, mode, bool((drawn >> 8) % 4), ranks == 2 and bool((drawn >> 16) % 2))
