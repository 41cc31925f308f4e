"""How a case is run on several ranks."""

from __future__ import annotations

from dataclasses import dataclass

from rematch.case import Case
from rematch.protocol import Unsupported

MODES = {
    "ddp": ("default", "find_unused_parameters", "static_graph"),
    "fsdp2": ("checkpoint within", "checkpoint around"),
}
_BOTH = {"ranks": ("2", "4"), "no_sync": ("no", "yes")}
OPTIONS = {
    "ddp": {"mode": MODES["ddp"], **_BOTH, "buckets": ("shared", "single")},
    "fsdp2": {"mode": MODES["fsdp2"], **_BOTH},
}
SHARES = {kind: {"no_sync": 0.75} for kind in OPTIONS}


@dataclass(frozen=True)
class Setup:
    """How a case is run in parallel, which its options decide."""

    kind: str
    ranks: int
    mode: str
    no_sync: bool
    """Gradients are reduced in the last microbatch of a step only."""
    buckets: bool
    """DDP puts several parameters into a bucket."""


def setup_of(kind: str, case: Case) -> Setup:
    """Raises Unsupported for a batch that cannot be shared."""
    rows = case.input[0]
    if rows < 2:
        raise Unsupported("a batch of one row: there is nothing to share")
    chosen = {name: values[0] for name, values in OPTIONS[kind].items()} | dict(case.options)
    ranks = int(chosen["ranks"]) if rows >= 4 else 2
    # Where in a bucket it lies decides in which order four gradients are added up.
    shared = ranks == 2 and chosen.get("buckets") == "shared"
    return Setup(kind, ranks, chosen["mode"], chosen["no_sync"] == "yes", shared)
