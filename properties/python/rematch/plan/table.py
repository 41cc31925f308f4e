"""Chooses which steps are measured, and makes a chain of blocks of the results."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from rematch.journal.storages import Curve, Mark
from rematch.plan.choose import NONE, Chain, Pairs, Walk
from rematch.plan.step import END, Measured

MOST_ASSIGNMENTS = 16
"""The most choices for all blocks that are measured one by one."""


def designs(blocks: int, options: int) -> Iterator[tuple[int, ...]]:
    """Yields choices for all blocks in which every pair of options meets at every two neighbouring blocks: for a prime
    p, block i gets option a + b i modulo p, for all a and b."""
    p = next(n for n in range(max(options, 2), 2 * options + 2) if all(n % d for d in range(2, n)))
    seen = set()
    for b, a in product(range(p), repeat=2):
        # Options beyond the last one are the first.
        chosen = tuple(o if (o := (a + b * i) % p) < options else 0 for i in range(blocks))
        if chosen not in seen:
            seen.add(chosen)
            yield chosen


def all_choices(blocks: int, options: int) -> list[tuple[int, ...]] | None:
    """Returns all choices for all blocks, the plain one first; None if there are too many."""
    if options**blocks > MOST_ASSIGNMENTS:
        return None
    return list(product(range(options), repeat=blocks))


class Table:
    """The measurements of a chain: for each block, by the choice before it and its own."""

    def __init__(self, blocks: int) -> None:
        self._forward, self._backward = (Walk(0, _pairs(blocks), _pairs(blocks)) for _ in range(2))
        self._tail: dict[tuple[int, int], int] = {}
        self._fixed = 0

    def note(self, chosen: Sequence[int], seen: Measured, beats: bool = False) -> None:
        """Adds what was measured of a step. Where that differs, the largest is kept, or this one if it `beats` them."""
        parts = Parts(seen.curve, len(chosen))
        self._fixed = max(self._fixed, parts.fixed)

        def put(into: dict[tuple[int, int], int], key: tuple[int, int], value: int) -> None:
            into[key] = value if beats else max(value, into.get(key, value))

        walks = (self._forward, self._backward)
        for walk, levels, most in zip(walks, parts.levels, parts.most, strict=True):
            walk.start = levels[0]
            before = NONE
            for i, option in enumerate(chosen):
                put(walk.adds[i], (before, option), levels[i + 1] - levels[i])
                put(walk.inner[i], (before, option), most[i] - levels[i])
                before = option
        put(self._tail, (chosen[0], chosen[-1]), parts.tail - parts.levels[1][-1])

    def chain(self, cost: Sequence[Sequence[int]]) -> Chain:
        """Returns the chain, with the cost of each choice of each block."""
        options = range(len(cost[0]))
        tail = {
            (first, last): self._tail.get((first, last), max(v for key, v in self._tail.items() if key[1] == last))
            for first in options
            for last in options
        }
        return Chain(self._forward, self._backward, self._fixed, tail, cost)


def _pairs(blocks: int) -> Pairs:
    return [{} for _ in range(blocks)]


class Parts:
    """Live bytes of a step, cut where its blocks begin. Lists come in pairs: forward, backward.

    Level i: the bytes live before block i runs, or after its backward. Last level: those when the code behind the
    blocks begins, or when its backward ends. `most`: the most between two levels. `tail`: while that code runs.
    """

    def __init__(self, curve: Curve, blocks: int) -> None:
        marks = curve.marks
        at = {mark.name: i for i, mark in enumerate(marks)}
        forward = [at[f"forward {i}"] for i in range(blocks)]
        end, last = forward[-1] + 1, at[END]
        cuts = [*forward, end]
        self.levels = [[marks[i].live for i in cuts], []]
        self.most = [[_most(marks, a, b) for a, b in pairwise(cuts)], []]
        # A block whose output has no gradient has no backward: its level is that of the block before it.
        until, level = last, marks[last].live
        self.levels[1].append(level)
        for i in range(blocks):
            begin = at.get(f"backward {i}", until)
            self.most[1].append(max(level, _most(marks, begin, until)) if begin < until else level)
            until, level = min(begin, until), marks[begin].live if begin < until else level
            self.levels[1].append(level)
        self.tail = max(level, _most(marks, end, until))
        self.fixed = max(_most(marks, 0, forward[0]), _most(marks, last, len(marks)))


def _most(marks: Sequence[Mark], begin: int, end: int) -> int:
    return max((mark.most for mark in marks[begin:end]), default=0)
