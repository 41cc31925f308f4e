"""Operators that ran, and where a recomputation diverges from its forward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Op:
    """An operator that ran, its submodule, and hashes of the tensors that it took and made."""

    name: str
    module: str
    takes: tuple[int, ...]
    makes: tuple[int, ...]
    metadata: tuple[Any, ...]
    layout: tuple[Any, ...]
    sources: tuple[str, ...]
    """For each of `takes`, the name of the state or input that it read; "" for what another operator made."""
    settings: tuple[Any, ...] = ()
    """Its arguments that are not tensors."""
    writes: tuple[str, ...] = ()
    draws: bool = False
    view: bool = False

    def __str__(self) -> str:
        return f"{self.name} in {self.module}" if self.module else self.name


@dataclass(frozen=True)
class Fork:
    """Where a recomputation diverges from its forward: `first` ran in the forward, `again` in the recomputation; None
    if one of them has ended."""

    first: Op | None
    again: Op | None
    skipped: frozenset[int] = frozenset()
    """Hashes of what the forward made before the operator that the recomputation runs next, if it skips anything."""

    @property
    def same_operator(self) -> bool:
        return self.first is not None and self.again is not None and _same_place(self.first, self.again)

    @property
    def same_inputs(self) -> bool:
        """Whether the operator itself made something else from the same inputs."""
        if self.first is None or self.again is None or not self.same_operator:
            return False
        return (self.first.takes, self.first.settings) == (self.again.takes, self.again.settings)

    @property
    def of_others(self) -> bool:
        """Whether the same operator made a result of the same kind from other operands."""
        if self.first is None or self.again is None or not self.same_operator:
            return False
        return self.first.takes != self.again.takes and self.first.metadata == self.again.metadata

    @property
    def source(self) -> str:
        """The name of the state or input that had other values; "" if none is known."""
        if not self.same_operator or self.first is None or self.again is None:
            return ""
        for source, a, b in zip(self.again.sources, self.first.takes, self.again.takes, strict=False):
            if a != b and source:
                return source
        return ""

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.again} runs in the recomputation only"
        if self.again is None:
            return f"{self.first} runs in the forward only"
        if self.same_operator:
            if self.first.metadata != self.again.metadata:
                return (
                    f"{self.again} makes {_metadata(self.again)} in the recomputation, {_metadata(self.first)} before"
                )
            of = "" if self.same_inputs else (f" of {self.source}" if self.source else " of other operands")
            if self.first.takes == self.again.takes and not self.same_inputs:
                of = " with other arguments"
            return f"{self.again} computes something else in the recomputation{of}"
        return f"the recomputation runs {self.again}, the forward ran {self.first}"


def fork_of(first: Sequence[Op], again: Sequence[Op], whole: bool) -> Fork | None:
    """Returns where the operators of a recomputation, `again`, diverge from those of its forward, `first`; None if they
    do not. `whole`: nothing ends a recomputation early, so a shorter one leaves something out."""
    before, after = _computing(first), _computing(again)
    for i, (a, b) in enumerate(zip(before, after, strict=False)):
        other = not _same_place(a, b) or a.metadata != b.metadata
        if other or (a.makes != b.makes and not b.writes):
            return Fork(
                a, b, _skipped(first, before, i, b, whole and len(after) < len(before)) if other else frozenset()
            )
    if len(after) > len(before):
        return Fork(None, after[len(before)])
    if whole and len(after) < len(before):
        return Fork(before[len(after)], None, frozenset(h for op in first for h in op.makes))
    return None


def _skipped(first: Sequence[Op], before: Sequence[Op], i: int, next_op: Op, shorter: bool) -> frozenset[int]:
    for op in before[i:]:
        if _same_place(op, next_op) and op.metadata == next_op.metadata:
            end = next(n for n, other in enumerate(first) if other is op)
            return frozenset(h for op in first[:end] for h in op.makes)
    return frozenset(h for op in first for h in op.makes) if shorter else frozenset()


def _same_place(a: Op, b: Op) -> bool:
    """Whether two operators are the same one of the forward, in the same module."""
    return (a.name, a.module) == (b.name, b.module)


def _computing(ops: Sequence[Op]) -> list[Op]:
    return [op for op in ops if not op.view and not op.name.startswith(("aten.empty", "aten.lift_fresh"))]


def _metadata(op: Op) -> str:
    return ", ".join(f"{str(dtype).removeprefix('torch.')} {list(shape)}" for shape, dtype in op.metadata)
