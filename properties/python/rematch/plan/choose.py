"""The cheapest choice for the blocks of a chain within a number of bytes: exact, by dynamic programming.

Forward and backward are each a walk over levels. Before block i runs, those bytes are live that were live before
block i - 1 and what that block added; after its backward, those are live that will be after the backward of
block i - 1 and what that one will free. What a block adds, and how far it goes beyond its level, depends on what
is chosen for it and for the block before it, whose output it may share. (The two walks differ: what Python
still refers to is live in the forward, and gone in the backward.)

So each block's part of the peak depends on the choices before it alone, and for every block and last choice only
those need to be kept that no other one beats in both levels and in cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

NONE = -1
"""What was chosen for the block before the first one."""
Pairs = list[dict[tuple[int, int], int]]
"""For each block: bytes by the choice for the block before it and its own."""


@dataclass
class Walk:
    """The forward or the backward. Bytes."""

    start: int = 0
    """Live before the first block in the forward, after its backward in the backward."""
    adds: Pairs = field(default_factory=list)
    inner: Pairs = field(default_factory=list)
    """The most bytes beyond the level of a block while it runs."""


@dataclass(frozen=True)
class Chain:
    """What was measured. Costs are integers, of any unit."""

    forward: Walk
    backward: Walk
    fixed: int
    """The peak of what no choice changes: before the first block, and in the optimizer."""
    tail: dict[tuple[int, int], int]
    """The most bytes beyond the last level of the backward while what follows the blocks runs, by the choices for the
    first block and the last: the input of the first one may be live because of Python alone."""
    cost: Sequence[Sequence[int]]
    """For each block: the cost of each choice."""


@dataclass(frozen=True, order=True)
class Choice:
    """One choice for each block, with its cost and its peak."""

    cost: int
    peak: int
    options: tuple[int, ...]


def peak_of(chain: Chain, options: Sequence[int]) -> int:
    """The peak that a choice has."""
    most = chain.fixed
    for walk in (chain.forward, chain.backward):
        live, before = walk.start, NONE
        for i, option in enumerate(options):
            most = max(most, live + walk.inner[i][before, option])
            live += walk.adds[i][before, option]
            before = option
    # The backward was walked last.
    return max(most, live + chain.tail[options[0], options[-1]])


@dataclass(slots=True)
class _State:
    cost: int
    forward: int
    backward: int
    last: int
    first: int
    path: _State | None

    def options(self) -> Iterator[int]:
        state: _State | None = self
        while state is not None and state.last != NONE:
            yield state.last
            state = state.path


def cheapest(chain: Chain, budget: int) -> Choice | None:
    """The choice with the least cost whose peak is at most `budget`; None where there is none."""
    if chain.fixed > budget:
        return None
    forward, backward = chain.forward, chain.backward
    states = [_State(0, forward.start, backward.start, NONE, NONE, None)]
    for i, costs in enumerate(chain.cost):
        reached: list[_State] = []
        for state in states:
            for option, cost in enumerate(costs):
                pair = state.last, option
                if state.forward + forward.inner[i][pair] > budget or state.backward + backward.inner[i][pair] > budget:
                    continue
                after = state.forward + forward.adds[i][pair], state.backward + backward.adds[i][pair]
                first = state.first if i else option
                reached.append(_State(state.cost + cost, *after, option, first, state))
        alike: dict[tuple[int, int], list[_State]] = {}
        for state in reached:
            alike.setdefault((state.first, state.last), []).append(state)
        states = [state for found in alike.values() for state in _unbeaten(found)]
    ends = [state for state in states if state.backward + chain.tail[state.first, state.last] <= budget]
    if not ends:
        return None
    best = min(ends, key=lambda state: state.cost)
    options = tuple(best.options())[::-1]
    return Choice(best.cost, peak_of(chain, options), options)


def lowest(cheapest_within: Callable[[int], Choice | None], choice: Choice) -> Choice:
    """Of the choices that cost as much as `choice`, one with the least peak."""
    while (lower := cheapest_within(choice.peak - 1)) is not None and lower.cost == choice.cost:
        choice = lower
    return choice


def frontier(cheapest_within: Callable[[int], Choice | None], apart: int = 1) -> list[Choice]:
    """Choices that no other one beats in both cost and peak, the cheapest first: all of them, or, where `apart` is
    more than 1, such that peaks are so many bytes apart, and the one with the least peak. `cheapest_within`: the
    cheapest choice within a number of bytes."""
    found: list[Choice] = []
    budget, step = 1 << 62, apart
    while step:
        choice = cheapest_within(budget)
        if choice is None:
            # Nothing is so low: half a step down from the last one.
            step //= 2
        else:
            found.append(lowest(cheapest_within, choice))
        if found:
            budget = found[-1].peak - max(1, step)
    return found


def _unbeaten(found: list[_State]) -> list[_State]:
    """Sorted by cost; of those that cost no more, none may have both levels at most as high."""
    kept: list[_State] = []
    # The lowest levels so far: of those that were kept, the ones that no later one is below.
    lowest: list[_State] = []
    for state in sorted(found, key=lambda s: (s.cost, s.forward, s.backward)):
        if not any(k.forward <= state.forward and k.backward <= state.backward for k in lowest):
            kept.append(state)
            lowest = [k for k in lowest if k.forward < state.forward or k.backward < state.backward] + [state]
    return kept
