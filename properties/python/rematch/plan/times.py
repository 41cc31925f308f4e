"""How much longer a step takes: ratios of steps that alternate, and an interval for their median."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

WRONG = 0.05
"""How seldom an interval misses the median, shared out among the looks at it: a half, a sixth, a twelfth, and so on."""
WITHIN = 0.03
"""The width at which an interval is narrow enough."""
_FIRST_LOOK = 8
"""The pairs before the first look; each further look comes after twice as many."""
_FEWEST = 7
"""The fewest pairs whose least and largest ratio miss the median as seldom as the first look may: 2 / 2**7 of times."""


@dataclass(frozen=True)
class Interval:
    """How much longer something takes than a plain step, as a share of that: 0.2 is 20 % more."""

    low: float = 0.0
    middle: float = 0.0
    high: float = 0.0
    pairs: int = 0
    """How many pairs of steps were timed; fewer than seven make no sure interval."""

    def __str__(self) -> str:
        return f"{self.middle:+.0%} ({100 * self.low:.1f} to {100 * self.high:.1f})"

    @property
    def is_sure(self) -> bool:
        """Whether there were enough pairs for an interval that holds the median."""
        return self.pairs >= _FEWEST

    def meets(self, other: "Interval") -> bool:
        """Returns whether the two cannot be told apart."""
        return self.low <= other.high and other.low <= self.high


def interval(ratios: Sequence[float], wrong: float) -> Interval:
    """Returns the median of the ratios less 1, and the order statistics around it that miss the true median with a
    probability of at most `wrong`, whatever the distribution; the least and the largest if there are too few."""
    ordered, count = sorted(ratios), len(ratios)
    missed, cut = 0.0, 0
    # The true median lies below the k-th least of n with the probability of fewer than k heads in n throws.
    while cut < count // 2 and (missed := missed + 2 * comb(count, cut) / 2**count) <= wrong:
        cut += 1
    cut = max(0, cut - 1)
    return Interval(ordered[cut] - 1, median(ordered) - 1, ordered[count - 1 - cut] - 1, count)


def compare(
    plain: Callable[[], float], others: Sequence[Callable[[], float]], spent: Callable[[], bool]
) -> list[Interval]:
    """Times steps in turn until each interval is narrow enough, or the time is `spent`.

    Each round runs a plain step and one of each other kind, in an order that turns from round to round, so that what
    else runs on the machine meets all alike. There is at least one round. Functions return a step's seconds.
    """
    ratios: list[list[float]] = [[] for _ in others]
    steps = [plain, *others]
    looks = 0
    while others:
        turn = len(ratios[0]) % len(steps)
        took = [0.0] * len(steps)
        for i in [*range(turn, len(steps)), *range(turn)]:
            took[i] = steps[i]()
        for of, seconds in zip(ratios, took[1:], strict=True):
            of.append(seconds / took[0])
        is_last = spent()
        if is_last or len(ratios[0]) == _FIRST_LOOK << looks:
            looks += 1
            found = [interval(of, WRONG / (looks * (looks + 1))) for of in ratios]
            if is_last or all(i.high - i.low <= WITHIN for i in found):
                return found
    return []
