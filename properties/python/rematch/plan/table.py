"""Chooses which steps are measured, and makes a chain of blocks of the results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, product

from rematch.journal.storages import Curve, Mark
from rematch.plan.choose import NONE, Chain, Choice, Pairs, Walk, cheapest
from rematch.plan.step import END, Measured

_LENGTHS = 2
"""How many lengths of segments are tried beside that of one block."""
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


@dataclass(frozen=True)
class Group:
    """Blocks that follow each other and are chosen for together: for each way, the option of each block."""

    first: int
    ways: Sequence[tuple[int, ...]]

    @property
    def last(self) -> int:
        """The number of the last block."""
        return self.first + len(self.ways[0]) - 1


def singly(blocks: int, options: int) -> list[Group]:
    """Returns a group for each block, with all options."""
    return [Group(i, [(option,) for option in range(options)]) for i in range(blocks)]


def in_groups(
    joins: Sequence[bool], stored: Sequence[int], inputs: Sequence[int], worth: int, options: tuple[int, int, int]
) -> list[list[Group]]:
    """Returns blocks in groups that may be segments, for each of a few lengths that seem to save more than `worth`
    bytes: fewer inputs of blocks are kept, but all of a segment's blocks are live at once.

    Args:
        joins: for each block, whether it may be in one segment with the block before it.
        stored, inputs: the bytes that are live before each block and after the last one, if all are stored, and if all
            are checkpointed.
        options: the numbers of the options stored, checkpointed, and joined.
    """
    plain, again, joined = options

    def cut(length: int) -> list[Group]:
        sizes: list[int] = []
        for may_join in joins:
            if may_join and sizes[-1] < length:
                sizes[-1] += 1
            else:
                sizes.append(1)
        return [
            Group(end - size, [(plain,) * size, (again,) + (joined,) * (size - 1), (again,) * size])
            for end, size in zip(accumulate(sizes), sizes, strict=True)
        ]

    def saves(groups: Sequence[Group]) -> int:
        less = sum(inputs[g.last + 1] - inputs[g.first + 1] for g in groups)
        return less - max(stored[g.last] - stored[g.first] for g in groups)

    tried = [(saves(groups), groups) for groups in map(cut, range(2, len(joins) + 1))]
    best = sorted((one for one in tried if one[0] > worth), key=lambda one: -one[0])
    return [groups for _, groups in best[:_LENGTHS]]


class Table:
    """The measurements of a chain: for each group of blocks, by the way before it and its own."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups, count = groups, len(groups)
        self._forward, self._backward = (Walk(0, _pairs(count), _pairs(count)) for _ in range(2))
        self._tail: dict[tuple[int, int], int] = {}
        self._fixed = 0

    def designs(self) -> Iterator[tuple[int, ...]]:
        """Yields options for all blocks, which together are all that a chain is made of."""
        for chosen in designs(len(self._groups), len(self._groups[0].ways)):
            yield tuple(chain.from_iterable(g.ways[way] for g, way in zip(self._groups, chosen, strict=True)))

    def note(self, options: tuple[int, ...], seen: Measured, beats: bool = False) -> None:
        """Adds what was measured of a step, if its options for the blocks are ways of the groups. Where that differs,
        the largest is kept, or this one if it `beats` them."""
        # Of one block, two ways may be the same.
        chosen = [[i for i, way in enumerate(g.ways) if way == options[g.first : g.last + 1]] for g in self._groups]
        if not all(chosen):
            return
        parts = Parts(seen.curve, self._groups)
        self._fixed = max(self._fixed, parts.fixed)

        def put(into: dict[tuple[int, int], int], key: tuple[int, int], value: int) -> None:
            into[key] = value if beats else max(value, into.get(key, value))

        walks = (self._forward, self._backward)
        for walk, levels, most in zip(walks, parts.levels, parts.most, strict=True):
            walk.start = levels[0]
            for i, pair in enumerate(pairwise([[NONE], *chosen])):
                for ways in product(*pair):
                    put(walk.adds[i], ways, levels[i + 1] - levels[i])
                    put(walk.inner[i], ways, most[i] - levels[i])
        for ends in product(chosen[0], chosen[-1]):
            put(self._tail, ends, parts.tail - parts.levels[1][-1])

    def cheapest(self, costs: Sequence[Sequence[int]], budget: int) -> Choice | None:
        """Returns the options with the least cost whose peak is at most `budget`; None if there are none. `costs`: for
        each block, of each option."""
        found = cheapest(self.chain(costs), budget)
        if found is None:
            return None
        ways = (g.ways[way] for g, way in zip(self._groups, found.options, strict=True))
        return Choice(found.cost, found.peak, tuple(chain.from_iterable(ways)))

    def chain(self, costs: Sequence[Sequence[int]]) -> Chain:
        """Returns the chain of the groups."""
        cost = [[sum(costs[g.first + i][o] for i, o in enumerate(way)) for way in g.ways] for g in self._groups]
        ways = range(len(cost[0]))
        tail = {
            (first, last): self._tail.get((first, last), max(v for key, v in self._tail.items() if key[1] == last))
            for first in ways
            for last in ways
        }
        return Chain(self._forward, self._backward, self._fixed, tail, cost)


def _pairs(blocks: int) -> Pairs:
    return [{} for _ in range(blocks)]


class Parts:
    """Live bytes of a step, cut where groups of blocks begin. Lists come in pairs: forward, backward.

    Level i: the bytes live before group i runs, or after its backward. Last level: those when the code behind the
    blocks begins, or when its backward ends. `most`: the most between two levels. `tail`: while that code runs.
    """

    def __init__(self, curve: Curve, groups: Sequence[Group]) -> None:
        marks = curve.marks
        at = {mark.name: i for i, mark in enumerate(marks)}
        forward = [at[f"forward {g.first}"] for g in groups]
        end, last = at[f"forward {groups[-1].last}"] + 1, at[END]
        cuts = [*forward, end]
        self.levels = [[marks[i].live for i in cuts], []]
        self.most = [[_most(marks, a, b) for a, b in pairwise(cuts)], []]
        # Where an output has no gradient there is no backward: the level is that of the group before.
        until, level = last, marks[last].live
        self.levels[1].append(level)
        for g in groups:
            begin = at.get(f"backward {g.last}", until)
            self.most[1].append(max(level, _most(marks, begin, until)) if begin < until else level)
            until, level = min(begin, until), marks[begin].live if begin < until else level
            self.levels[1].append(level)
        self.tail = max(level, _most(marks, end, until))
        self.fixed = max(_most(marks, 0, forward[0]), _most(marks, last, len(marks)))


def _most(marks: Sequence[Mark], begin: int, end: int) -> int:
    return max((mark.most for mark in marks[begin:end]), default=0)
