"""Finds where a recomputation differs from its forward."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rematch.journal.computations import Computation, Entry, Noted
from rematch.journal.fingerprint import bits

ROUNDING = 8
"""Units in the last place of the largest element. Results that are off by no more are counted but not reported if a
device adds in any order, or if a reentrant forward may have used another kernel. Results alone give no bound for sums
in any order; so this is a threshold below which `watch` does not decide."""


@dataclass(frozen=True)
class Difference:
    """A result of an operator, or a state, that differs between the forward and the recomputation."""

    module: str
    operator: str
    name: str
    """The name of the state (a parameter, a buffer or an argument); "" for a result."""
    element: int | None
    """The flat index of the first element that differs; None if none of the kept elements does."""
    now: Any
    was: Any
    differing: int
    compared: int
    elements: int
    draws: bool
    rounding: bool
    """Whether no kept element differs by more than rounding does."""
    shapes: tuple[list[int], list[int]]

    @property
    def values(self) -> str:
        """The difference in words, such as: element 17 is 4, in the forward 2 (3 of 128 elements)."""
        if self.shapes[0] != self.shapes[1]:
            return f"its shape is {self.shapes[0]}, in the forward {self.shapes[1]}"
        sampled = self.compared < self.elements
        kept = f"{self.compared:,} that are kept of {self.elements:,}" if sampled else f"{self.elements:,}"
        if self.element is None:
            return f"none of the {kept} elements shows it"
        now, was = told_apart(self.now, self.was)
        return f"element {self.element:,} is {now}, in the forward {was} ({self.differing:,} of {kept} elements)"


@dataclass(frozen=True)
class Comparison:
    """How a recomputation compares with its forward.

    `first` is the first result that differs, `route` the first integer or Boolean result that differs after it.
    `astray` is an operator that the recomputation runs and its forward never ran. `states` differ when they are read;
    `advanced` names those of them that the forward itself has changed.
    """

    first: Difference | None
    route: Difference | None
    astray: Entry | None
    states: tuple[Difference, ...]
    advanced: frozenset[str]
    rounded: bool = False
    """Whether some result was left out because it differs by no more than ROUNDING."""

    @property
    def same(self) -> bool:
        """Whether nothing but rounding differs."""
        return self.first is None and self.astray is None and not self.states


def compare(forward: Computation, again: Computation) -> Comparison:
    """Compares a recomputation with its forward, as far as it ran. Waits for the device once, and per difference."""
    if forward.prints is None or again.prints is None:
        return Comparison(None, None, None, (), frozenset())
    both = torch.cat((forward.prints, again.prints.to(forward.prints.device))).tolist()
    was, now = both[: len(forward.prints)], both[len(forward.prints) :]
    states, advanced = _states(forward, again, was, now)
    read = {difference.name: again.read_at[difference.name] for difference in states}
    first = route = None
    rounded = False
    differing, astray = _differing(forward, again, was, now)
    for number, before in differing:
        noted = again.results[number]
        if first is not None and noted.entry.dtype.is_floating_point:
            continue
        found = _difference(forward.results[before], noted)
        # A reentrant forward runs without gradients, where an operator may have another kernel.
        exact = noted.entry.exact and not forward.reentrant
        if found.rounding and not exact and not any(at <= number for at in read.values()):
            rounded = True
            continue
        if first is None:
            first = found
        if not noted.entry.dtype.is_floating_point:
            route = found if found is not first else None
            break
    return Comparison(first, route, astray, states, advanced, rounded)


def _states(forward: Computation, again: Computation, was: list[int], now: list[int]) -> tuple[Any, frozenset[str]]:
    before = dict(zip(forward.reads, was[len(forward.results) :], strict=False))
    after = dict(zip(again.reads, now[len(again.results) :], strict=False))
    left = dict(zip(forward.wrote, was[len(forward.results) + len(forward.reads) :], strict=True))
    names = [name for name in after if name in before and before[name] != after[name]]
    found = tuple(_difference(forward.reads[name], again.reads[name], name) for name in names)
    return found, frozenset(name for name in names if left.get(name, before[name]) != before[name])


def _differing(
    forward: Computation, again: Computation, was: list[int], now: list[int]
) -> tuple[Iterator[tuple[int, int]] | list[tuple[int, int]], Entry | None]:
    """Returns which results differ, each with the forward's; and an operator that the forward never ran and in which
    the recomputation ended."""
    entries, earlier = [n.entry for n in again.results], [n.entry for n in forward.results]
    if entries == earlier[: len(entries)]:
        return ((i, i) for i in range(len(entries)) if was[i] != now[i]), None
    # A forward may fill a cache that the recomputation finds. It is right as long as it computes
    # nothing that its forward did not compute with the same operator.
    seen: dict[Entry, list[int]] = defaultdict(list)
    for i, entry in enumerate(earlier):
        seen[entry].append(i)
    found, astray, count = [], None, dict.fromkeys(seen, 0)
    for i, entry in enumerate(entries):
        if entry not in seen:
            astray = astray or entry
        elif now[i] in (was[k] for k in seen[entry]):
            astray = None
            count[entry] += 1
        else:
            found.append((i, seen[entry][min(count[entry], len(seen[entry]) - 1)]))
            count[entry] += 1
    return found, None if found else astray


def _difference(forward: Noted, again: Noted, name: str = "") -> Difference:
    entry, was, now = again.entry, forward.kept, again.kept
    parts = 2 if entry.dtype.is_complex else 1
    total = entry.shape.numel()
    shapes = list(entry.shape), list(forward.entry.shape)
    if was.shape != now.shape or was.dtype != now.dtype:
        return Difference(entry.module, entry.operator, name, None, None, None, 0, 0, total, entry.draws, False, shapes)
    others = (bits(was) != bits(now)).nonzero().flatten()
    place = int(others[0]) if others.numel() else 0
    rounding = not (entry.draws or name) and entry.dtype.is_floating_point and _rounding(was, now)
    return Difference(
        entry.module,
        entry.operator,
        name,
        place * again.stride // parts if others.numel() else None,
        now[place].item() if others.numel() else None,
        was[place].item() if others.numel() else None,
        others.numel(),
        now.numel() // parts,
        total,
        entry.draws,
        rounding,
        shapes,
    )


def _rounding(was: torch.Tensor, now: torch.Tensor) -> bool:
    """Whether the kept elements differ, but by no more than rounding."""
    a, b = was.double(), now.double()
    apart = (a - b).abs().max()
    return bool(apart > 0) and bool(apart <= ROUNDING * torch.finfo(was.dtype).eps * a.abs().max())


def told_apart(now: Any, was: Any) -> tuple[str, str]:
    """Returns two different numbers as texts, with as many digits as it takes to tell them apart."""
    if not isinstance(now, float):
        return str(now), str(was)
    texts = ((f"{now:.{digits}g}", f"{was:.{digits}g}") for digits in range(7, 18))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(now), repr(was)))
