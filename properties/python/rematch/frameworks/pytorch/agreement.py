"""Records of data-parallel runs: in what ranks must agree, and what they show together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from rematch.subjects.records import Record, bits_of

JOINED = ("output", "input_gradient", "reevaluation")
"""Quantities of which each rank has its rows."""
SHARDED = ("parameter", "parameter_gradient")
"""Quantities of which each rank of FSDP2 has a shard, which is cut by rows, too."""
OWN = ("loss", "buffer")
"""Quantities of which each rank has its own, from its rows or from what it has seen."""
ALIKE = ("hooks", "grad_flags", "units", "collectives")
"""Lists that every rank shows alike."""


class Shown(Record):
    """The record of one rank, with its arrays as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays: dict[tuple[str, int, int, int], tuple[np.ndarray | None, dict[str, Any]]] = {}

    def observe(
        self,
        quantity: str,
        array: np.ndarray | None,
        *,
        step: int = 0,
        microbatch: int = 0,
        index: int = 0,
        **rest: Any,
    ) -> None:
        place = quantity, step, microbatch, index
        self.arrays[place] = (None if array is None else array.copy(), rest)


@dataclass
class Answer:
    """The answer of one rank."""

    shown: Shown = field(default_factory=Shown)
    collectives: list[str] = field(default_factory=list)
    rows: int = 0
    """The number of rows that the sizes of its collectives depend on; 0: they depend on none."""
    error: tuple[str, str] | None = None
    unsupported: str = ""

    @property
    def failed(self) -> str:
        return ": ".join(self.error) if self.error else ""


def difference(answers: Sequence[Answer], same: int = 1, sharded: bool = False) -> str:
    """Tells in what ranks should agree and do not; "" if they agree. `same`: how many neighbours have the same rows.
    `sharded`: each shows shards of parameters."""
    peers = (_difference(answers, range(at, at + same), False, sharded) for at in range(0, len(answers), same))
    across = _difference(answers, range(0, len(answers), same), True, sharded)
    return next(filter(None, [*peers, across]), "")


def _difference(answers: Sequence[Answer], ranks: Sequence[int], split: bool, sharded: bool) -> str:
    """`split`: each has rows of its own."""
    at, first = ranks[0], answers[ranks[0]]
    parts = (*(JOINED if split else ()), *(SHARDED if sharded else ()))
    own = OWN if split else ()
    for rank in ranks[1:]:
        other = answers[rank]
        sized = first.rows == other.rows
        if other.error != first.error:
            told = [a.failed or "no error" for a in (first, other)]
            return f"rank {at}: {told[0]}; rank {rank}: {told[1]}"
        called = [a.collectives if sized else [c.partition(" ")[0] for c in a.collectives] for a in (first, other)]
        if called[0] != called[1]:
            return f"collectives of rank {at}: {', '.join(called[0])}; of rank {rank}: {', '.join(called[1])}"
        if first.error:
            continue
        ours, its = first.shown.arrays, other.shown.arrays
        for place in (*ours, *(place for place in its if place not in ours)):
            quantity, step, microbatch, index = place
            kind = quantity in parts, quantity in own
            if _alike(ours.get(place), *kind) != _alike(its.get(place), *kind):
                return (
                    f"{quantity} {index}, step {step}, microbatch {microbatch}: rank {at} has "
                    f"{_told(ours.get(place))}, rank {rank} has {_told(its.get(place))}"
                )
        for name in ALIKE if sized else [name for name in ALIKE if name != "collectives"]:
            for mine, theirs in zip_longest(first.shown.entries(name), other.shown.entries(name)):
                if mine != theirs:
                    return f"{name}: rank {at} has {mine}, rank {rank} has {theirs}"
    return ""


def _alike(shown: tuple[np.ndarray | None, dict[str, Any]] | None, is_part: bool, is_own: bool) -> Any:
    """What all ranks must have alike of an array, which is a part of a whole, or a rank's own."""
    if shown is None or shown[0] is None:
        return shown
    array, rest = shown
    if is_part:
        return array.dtype, array.shape[1:], rest
    return array.dtype, array.shape, rest, b"" if is_own else bits_of(array)


def _bits(shown: tuple[np.ndarray | None, dict[str, Any]] | None) -> bytes | None:
    return None if shown is None or shown[0] is None else bits_of(shown[0])


def _told(shown: tuple[np.ndarray | None, dict[str, Any]] | None) -> str:
    if shown is None:
        return "nothing"
    array, rest = shown
    numbers = "none" if array is None else np.array2string(array.ravel(), threshold=8)
    return " ".join([numbers, *(f"{name}={value}" for name, value in rest.items() if value)])


def strayed(plain: Sequence[Answer], answers: Sequence[Answer]) -> str:
    """Where a rank's random state, or the state of a layer, is not that of its plain run, though that of rank 0, which
    laws judge, is. Of unequal rows ranks draw unequally much, and normalize by their own: each is compared with itself.
    """
    for rank, (wanted, answer) in enumerate(zip(plain, answers, strict=True)):
        for was, got in zip_longest(wanted.shown.entries("streams"), answer.shown.entries("streams")):
            if was != got:
                return f"random state of rank {rank}: {was} in the plain run, {got}" if rank else ""
        for place in dict.fromkeys([*wanted.shown.arrays, *answer.shown.arrays]):
            before, after = wanted.shown.arrays.get(place), answer.shown.arrays.get(place)
            if place[0] == "buffer" and _bits(before) != _bits(after):
                told = f"{_told(before)} in the plain run, {_told(after)}"
                return f"buffer {place[3]} of rank {rank}: {told}" if rank else ""
    return ""


def join(answers: Sequence[Answer], record: Record, same: int = 1, sharded: bool = False) -> None:
    """Notes what ranks show together; what one of them lacks, they do not. `same`, `sharded`: as difference()."""
    record.take_over(answers[0].shown)
    for place, (array, rest) in answers[0].shown.arrays.items():
        quantity, step, microbatch, index = place
        if any(place not in answer.shown.arrays for answer in answers):
            continue
        shown = [answer.shown.arrays[place][0] for answer in answers]
        parts = shown[::same]
        if sharded and quantity in SHARDED and array is not None:
            # Of a module of the subject's own, whose parameters count as one, those of each rank follow each other.
            array = np.concatenate(shown)
        elif array is not None and all(part is not None for part in parts):
            if quantity in JOINED:
                array = np.concatenate(parts)
            elif quantity == "loss":
                array = np.sum(parts, axis=0, dtype=array.dtype) / array.dtype.type(len(parts))
            if quantity == "input_gradient":
                array = array / array.dtype.type(len(parts))
        record.observe(quantity, array, step=step, microbatch=microbatch, index=index, **rest)
