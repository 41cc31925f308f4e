"""Finds the cheapest choice for the blocks of a chain within a number of bytes, exactly, by dynamic programming.

Forward and backward are each a walk over levels. The level before block i runs is the level before block i - 1 plus the
bytes that block i - 1 added; in the backward, the level after block i is the level after block i - 1 plus the bytes
that block i - 1 will free. The bytes that a block adds, and how far it exceeds its level, depend on the choices for it
and for the block before it, whose output it may share. (The two walks differ: memory to which Python still refers is
live in the forward, and gone in the backward.)

So each block's part of the peak depends only on the choices before it, and for each block and last choice only those
states must be kept that no other state beats in both levels and in cost.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

NONE = -1
"""Stands for the choice for the block before the first one."""
Pairs = list[dict[tuple[int, int], int]]
"""For each block, bytes by the choice for the block before it and the block's own choice."""


@dataclass
class Walk:
    """The forward or the backward. All numbers are bytes."""

    start: int = 0
    """The level before the first block in the forward; the level after its backward in the backward."""
    adds: Pairs = field(default_factory=list)
    inner: Pairs = field(default_factory=list)
    """The most bytes beyond a block's level while the block runs."""


@dataclass(frozen=True)
class Chain:
    """What was measured of a chain of blocks. Costs are integers, in any unit."""

    forward: Walk
    backward: Walk
    fixed: int
    """The peak of the parts that no choice changes: before the first block, and in the optimizer."""
    tail: dict[tuple[int, int], int]
    """The most bytes beyond the last level of the backward while the code after the blocks runs, by the choices for the
    first block and the last: Python alone may keep the input of the first one live."""
    cost: Sequence[Sequence[int]]
    """For each block, the cost of each choice."""


@dataclass(frozen=True, order=True)
class Choice:
    """One choice for each block, with its cost and its peak."""

    cost: int
    peak: int
    options: tuple[int, ...]


def peak_of(chain: Chain, options: Sequence[int]) -> int:
    """Returns the peak of a choice for all blocks."""
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
    path: "_State | None"

    def options(self) -> Iterator[int]:
        state: _State | None = self
        while state is not None and state.last != NONE:
            yield state.last
            state = state.path


def cheapest(chain: Chain, budget: int) -> Choice | None:
    """Returns the choice with the least cost whose peak is at most `budget`; None if there is none."""
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
    """Returns a choice with the least peak among those that cost as much as `choice`."""
    while (lower := cheapest_within(choice.peak - 1)) is not None and lower.cost == choice.cost:
        choice = lower
    return choice


def frontier(cheapest_within: Callable[[int], Choice | None], apart: int = 1) -> list[Choice]:
    """Returns the choices that no other choice beats in both cost and peak, the cheapest first. If `apart` is more than
    1, returns only choices whose peaks are that many bytes apart, and the one with the least peak. `cheapest_within`
    returns the cheapest choice within a number of bytes."""
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
    """Returns the states sorted by cost, without those that a state of no more cost beats in both levels."""
    kept: list[_State] = []
    # The kept states with the lowest levels so far: no later one is below them.
    lowest: list[_State] = []
    for state in sorted(found, key=lambda s: (s.cost, s.forward, s.backward)):
        if not any(k.forward <= state.forward and k.backward <= state.backward for k in lowest):
            kept.append(state)
            lowest = [k for k in lowest if k.forward < state.forward or k.backward < state.backward] + [state]
    return kept
